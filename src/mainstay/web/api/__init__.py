"""The REST API: one module per resource. Start at `routes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .fields import (
        Duration as Duration,
        Limit as Limit,
        Millis as Millis,
        PageSize as PageSize,
        Priority as Priority,
        Reason as Reason,
        Tag as Tag,
        Text as Text,
    )
    from .job_responses import (
        AdviceView as AdviceView,
        AwaitedJobs as AwaitedJobs,
        BulkResult as BulkResult,
        DrainedSessions as DrainedSessions,
        EventPage as EventPage,
        JobDeleted as JobDeleted,
        JobPage as JobPage,
        ProblemView as ProblemView,
        Story as Story,
        SubmitGroupResponse as SubmitGroupResponse,
        SubmitManyResponse as SubmitManyResponse,
        SubmitResponse as SubmitResponse,
        UnitPage as UnitPage,
        WorkerList as WorkerList,
        WorkingSession as WorkingSession,
    )
    from .masker import MASK as MASK, Masker as Masker
    from .operation import (
        ApiOperation as ApiOperation,
        ApiRequest as ApiRequest,
        ApiResponse as ApiResponse,
        NoParameters as NoParameters,
        json_response as json_response,
    )
    from .request_reader import read_json as read_json, refusal as refusal
    from .secret_cache import Secrets as Secrets
    from .secret_search import secrets_of as secrets_of
    from .store_responses import (
        LimitList as LimitList,
        QuickCheckResult as QuickCheckResult,
        ScheduleInfo as ScheduleInfo,
        ScheduleList as ScheduleList,
        ScheduleRun as ScheduleRun,
        StoreInfo as StoreInfo,
        StoreList as StoreList,
    )
    from .submit import key_header as key_header
    from .text_mask import (
        TextMask as TextMask,
        shown_job as shown_job,
        shown_jobs as shown_jobs,
        text_mask_of as text_mask_of,
        with_masked_texts as with_masked_texts,
    )
    from .versions import wanted_version as wanted_version
    from .views import (
        etag_of as etag_of,
        masked_job as masked_job,
        size_of as size_of,
        value_view as value_view,
    )

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".fields": "Duration Limit Millis PageSize Priority Reason Tag Text",
        ".job_responses": "AdviceView AwaitedJobs BulkResult DrainedSessions EventPage JobDeleted JobPage "
        "ProblemView Story SubmitGroupResponse SubmitManyResponse SubmitResponse UnitPage WorkerList WorkingSession",
        ".masker": "MASK Masker",
        ".operation": "ApiOperation ApiRequest ApiResponse NoParameters json_response",
        ".request_reader": "read_json refusal",
        ".secret_cache": "Secrets",
        ".secret_search": "secrets_of",
        ".store_responses": "LimitList QuickCheckResult ScheduleInfo ScheduleList ScheduleRun StoreInfo StoreList",
        ".submit": "key_header",
        ".text_mask": "TextMask shown_job shown_jobs text_mask_of with_masked_texts",
        ".versions": "wanted_version",
        ".views": "etag_of masked_job size_of value_view",
    },
)
