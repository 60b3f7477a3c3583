"""Where native code finds what it is compiled against."""

import os


def get_include() -> str:
    """The folder of brick_python.h and brick_agent.h, for extensions that record into this process's segment.

    >>> import os
    >>> sorted(name for name in os.listdir(brick.get_include()) if name.endswith(".h"))
    ['brick_agent.h', 'brick_python.h']
    """
    return os.path.join(os.path.dirname(__file__), "include")
