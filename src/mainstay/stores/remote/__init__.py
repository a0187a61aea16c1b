"""The store through a manager: a node has no access to the database, and a manager answers its calls over the bus.

`RemoteStore` is the caller's side, a `JobStore`; `StoreService` is the manager's. Roles: a *node* reaches its own
sessions and rows only; an *operator* may make every call. `wire` is the form of both on the bus.
"""

from .callers import ROLES, caller_of, may_answer
from .node_role import NODE_CALLS
from .service import StoreService
from .store import ManagerConnection, RemoteCaller, RemoteStore, manager_connection
from .url import check_password, open_remote
from .versions import MAINSTAY_VERSION, check_versions, compatible
from .wire import StoreAnswer, StoreRequest, error_of, fault_of, pack_change, unpack_change

__all__ = [
    "MAINSTAY_VERSION",
    "NODE_CALLS",
    "ROLES",
    "ManagerConnection",
    "RemoteCaller",
    "RemoteStore",
    "StoreAnswer",
    "StoreRequest",
    "StoreService",
    "caller_of",
    "check_password",
    "check_versions",
    "compatible",
    "error_of",
    "fault_of",
    "manager_connection",
    "may_answer",
    "open_remote",
    "pack_change",
    "unpack_change",
]
