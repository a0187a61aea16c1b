"""Every iteration has one end, and sums that are wrong are found."""

from __future__ import annotations

from mainstay.load.stats.accounts import Account, IterationLedger
from mainstay.load.stats.model import Window
from mainstay.load.stats.trust import TrustWatch


def test_accounts_that_add_up_raise_no_doubt() -> None:
    ledger = IterationLedger()
    ledger.add(Window(bucket=0, arrivals=10, begun=6, dropped=2))
    ledger.add(Window(bucket=1, begun=2, iterations=5, failed_iterations=2, aborted_iterations=3))
    ledger.settle("Shop", [Account(open=True, arrivals=10, dropped=2, begun=8, completed=3, failed=2, aborted=3)])

    assert (ledger.errors, ledger.unknown) == ([], 0)


def test_an_iteration_without_an_end_makes_a_run_untrustworthy() -> None:
    ledger = IterationLedger()
    ledger.add(Window(bucket=0, begun=3, iterations=2))
    ledger.settle("Shop", [Account(begun=3, completed=2)])
    watch = TrustWatch()

    trust = watch.finish(wrong_sums=ledger.errors)

    assert not trust.ok
    why = "Shop: 3 iterations were started, and 2 were completed, 0 failed and 0 were aborted"
    assert trust.reasons[0].startswith(f"the accounts of the run do not add up ({why}): this is a bug in Mainstay")


def test_a_window_that_was_lost_is_found() -> None:
    ledger = IterationLedger()
    ledger.add(Window(bucket=0, begun=3, iterations=3))
    ledger.settle("Shop", [Account(begun=5, completed=5)])

    assert ledger.errors == [
        "begun: 3 in the windows, 5 in the generators",
        "completed: 3 in the windows, 5 in the generators",
    ]


def test_what_a_lost_generator_had_under_way_has_an_unknown_end() -> None:
    ledger = IterationLedger()
    ledger.add(Window(bucket=0, begun=9, iterations=4, aborted_iterations=1))

    assert ledger.unknown == 4
