"""Which names are taken for those of secrets."""

from __future__ import annotations

import re
import time
from pathlib import Path

import msgspec
import pytest

from mainstay.web.api.masker import MASK, MOST_SECRETS, Masker
from mainstay.web.options import WebOptions

DOCS = Path(__file__).parents[3] / "docs" / "http.md"

SECRET = """
    password passwords passwd pwd passphrase password_hash password2 db_password dbPassword DB-PASSWORD DBpassword
    userpassword PASSWORD passcode smtp_pass
    secret secrets secret_key client-secret clientSecret aws_secret_access_key SECRET_KEY
    token tokens tokenValue access_token accessToken accesstoken x-csrf-token refresh_tokens token1
    api_key apikey APIKEY apiKey APIKey X-API-Key api-keys access_key private_key privateKey PRIVATEKEY signing_key
    auth authorization Proxy-Authorization credentials awsCredentials creds cookie Set-Cookie cookies
    session_id sessionid sessionIDs otp dsn sentry_dsn SENTRY_DSN jwt bearer connectionString
"""
HARMLESS = """
    author authors authored_by authorized tokenize tokenizer secretary secretariat key keys primary_key public_key
    keyboard pin pins pinned password_length token_count tokenCount max_tokens maxTokens total_tokens prompt_tokens
    completion_tokens input_tokens output_tokens token_limit token_type auth_method session sessions user_id id ids pass
    passed passenger compass access accessible cookiecutter apiary otpimal private secretion
"""


@pytest.fixture(scope="module")
def masker() -> Masker:
    return Masker(WebOptions().masked)


@pytest.mark.parametrize("name", SECRET.split())
def test_what_is_called_like_a_secret_is_masked(masker: Masker, name: str) -> None:
    assert masker.mask({"deep": [{name: "hush"}]}) == {"deep": [{name: MASK}]}


@pytest.mark.parametrize("name", HARMLESS.split())
def test_what_only_looks_like_it_is_shown(masker: Masker, name: str) -> None:
    assert masker.mask({name: "seen"}) == {name: "seen"}


def test_a_name_that_was_added_is_masked_in_any_spelling_and_as_whole_words() -> None:
    masker = Masker((*WebOptions().masked, "card_number", "phone", "token_count", "größe"))
    masked = ("cardNumber", "CARD-NUMBERS", "cardnumber", "old_card_number_2", "phone", "token_count", "Größe")
    shown = ("card", "number", "number_card", "microphone", "phoneme", "größer")
    assert masker.mask(dict.fromkeys((*masked, *shown), 1)) == {
        **dict.fromkeys(masked, MASK),
        **dict.fromkeys(shown, 1),
    }


def test_a_name_without_a_word_in_it_hides_nothing() -> None:
    assert Masker(("", "--")).mask({"a": 1, "": 2}) == {"a": 1, "": 2}


@pytest.mark.parametrize(
    ("unit", "shown"),
    [
        ("max_tokens=5_beta=2-s7", "max_tokens=5_beta=2-s7"),
        ("passwd=x_beta=2-s7", "passwd=***-s7"),
        ("beta=2_private-key=x-s7", "beta=2_private-key=***-s7"),
        ("tokenizer=bpe_beta=2-s7", "tokenizer=bpe_beta=2-s7"),
    ],
)
def test_parameters_in_names_of_units_go_by_the_same_rule(masker: Masker, unit: str, shown: str) -> None:
    assert masker.unit(unit) == shown


def test_the_documentation_has_every_name() -> None:
    text = DOCS.read_text()
    assert [name for name in WebOptions().masked if f"`{name}`" not in text] == []


@pytest.mark.parametrize("name", [*SECRET.split(), "paßword", "to\u212aen", "ſecret"])
def test_what_would_be_masked_is_never_missed_by_the_search_of_the_bytes(masker: Masker, name: str) -> None:
    value = [{"deep": {name: "hush"}}]
    assert masker.mask(value) != value
    assert masker.may_hide(msgspec.msgpack.encode(value))


def test_the_search_of_the_bytes_knows_each_letter_that_folds_into_ascii() -> None:
    folded = [each for each in map(chr, range(128, 0x110000)) if re.search("[a-z]", each.casefold())]
    assert folded
    masker = Masker(("password",))
    assert all(masker.may_hide(msgspec.msgpack.encode({f"x{each}": 1})) for each in folded)


def test_what_has_nothing_to_mask_is_not_searched_any_further(masker: Masker) -> None:
    assert not masker.may_hide(msgspec.msgpack.encode({"rows": [[1, 2.5, "Ann"]] * 100, "höhe": 3}))
    assert not Masker((), urls=False).may_hide(msgspec.msgpack.encode({"password": "https://a:b@c"}))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://bob:pa55word@example.org/x?y=1", "https://bob:***@example.org/x?y=1"),
        ("redis://:pa55word@cache:6379/0", "redis://:***@cache:6379/0"),
        ("postgresql://u:p@ss:w0rd@db/x", "postgresql://u:***@db/x"),
        ("of a://b:c@d and of e://f:g@h", "of a://b:***@d and of e://f:***@h"),
        ("https://example.org:8080/a@b", "https://example.org:8080/a@b"),
        ("https://bob@example.org", "https://bob@example.org"),
        ("bob:pa55word@example.org", "bob:pa55word@example.org"),
        ("://", "://"),
    ],
)
def test_the_password_of_a_url_is_masked_wherever_it_stands(masker: Masker, text: str, shown: str) -> None:
    assert masker.text(text) == shown
    assert masker.mask({"a": [text], "b": {"c": text}, "d": text}) == {"a": [shown], "b": {"c": shown}, "d": shown}
    assert Masker((), urls=False).mask([text]) == [text]


def test_a_long_text_without_a_url_password_is_read_once(masker: Masker) -> None:
    text = "a://" * 50_000 + ":" * 100_000
    began_s = time.thread_time()
    assert masker.text(text) == text
    assert time.thread_time() - began_s < 1


def test_long_lists_of_leaves_are_not_copied_leaf_by_leaf_and_secrets_are_limited(masker: Masker) -> None:
    numbers = [1] * 1_000_000
    began_s = time.thread_time()
    assert masker.mask({"rows": numbers, "token": 1}) == {"rows": numbers, "token": MASK}
    assert masker.secrets([numbers, {"token": "hush-hush"}]) == ("hush-hush",)
    assert time.thread_time() - began_s < 1
    many = masker.secrets({"token": [f"secret-{n}" for n in range(100_000)]})
    assert len(many) == MOST_SECRETS + 1
