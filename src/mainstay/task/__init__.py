"""Tasks: functions that workers run, and how calls of them are submitted.

Layer: above worker, below app. Start from `Task` (what `@app.task` makes), `Handle` (a submitted job) and `AppClient`
(what all tasks of an app share). `signature.py` turns a call into stored data and back. `kind` declares the parts of
this kind of job. Names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .app_methods import TaskMethods as TaskMethods
    from .call import Call as Call
    from .client import AppClient as AppClient
    from .codec import Codec as Codec, Sealer as Sealer
    from .current_client import enter_job as enter_job
    from .drafts import BeforeSubmit as BeforeSubmit, Draft as Draft, check_hook as check_hook, drafted as drafted
    from .handle import Handle as Handle, job_failure as job_failure
    from .options import (
        CommonOptions as CommonOptions,
        SubmitOptions as SubmitOptions,
        TaskOptions as TaskOptions,
        merge_options as merge_options,
    )
    from .returns import Returns as Returns
    from .signature import Arguments as Arguments, Signature as Signature
    from .storable import canonical as canonical, checked_type as checked_type
    from .task import AsyncTask as AsyncTask, PlainTask as PlainTask, Submits as Submits, Task as Task
    from .task_name import (
        check_function as check_function,
        is_async as is_async,
        name_of as name_of,
        place_of as place_of,
    )
    from .transactional import Transaction as Transaction


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".app_methods": "TaskMethods",
        ".call": "Call",
        ".client": "AppClient",
        ".codec": "Codec Sealer",
        ".current_client": "enter_job",
        ".drafts": "BeforeSubmit Draft check_hook drafted",
        ".handle": "Handle job_failure",
        ".options": "CommonOptions SubmitOptions TaskOptions merge_options",
        ".returns": "Returns",
        ".signature": "Arguments Signature",
        ".storable": "canonical checked_type",
        ".task": "AsyncTask PlainTask Submits Task",
        ".task_name": "check_function is_async name_of place_of",
        ".transactional": "Transaction",
    },
)
