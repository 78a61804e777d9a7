"""What the user did wrong, told once and plainly.

    UserError             bad input: one message that names what, where and what is allowed; exit code 2, no traceback
      SettingsError       cdk.json (fleet.config.validation)
      PublishError        files for the model store (fleet.modelstore.upload)

Anything else that escapes is our fault and ends with exit code 1.
"""

import sys
from typing import NoReturn

from fleet.core.untrusted import printable

EXIT_INTERNAL = 1  # an error of ours, or of AWS
EXIT_USAGE = 2  # bad input: usage, settings, credentials, permissions
EXIT_ATTENTION = 3  # answered, and something needs a human


class UserError(Exception):
    """Bad input."""


def exit_with(error: UserError) -> NoReturn:
    """Print the message to stderr and leave with the user's exit code."""
    print(printable(str(error)), file=sys.stderr)  # noqa: T201  the program's own last word
    sys.exit(EXIT_USAGE)
