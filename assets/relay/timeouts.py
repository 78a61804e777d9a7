"""asyncio's deadline for a block, also on the box's Python 3.9."""

import sys

if sys.version_info >= (3, 11):
    from asyncio import timeout_at as timeout_at  # novermin
else:
    # No task of its own, as wait_for makes, which then may swallow a cancellation.
    from async_timeout import timeout_at as timeout_at
