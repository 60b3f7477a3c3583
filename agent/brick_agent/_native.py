"""Where native code finds what it is compiled against."""

import os


def get_include() -> str:
    """The folder of brick_python.h, for extensions that record into this process's segment, and of the other headers.

    >>> import os
    >>> sorted(os.listdir(brick.get_include()))
    ['brick_agent.h', 'brick_agent.hpp', 'brick_fingerprint.h', 'brick_graph.h', 'brick_python.h']
    """
    return os.path.join(os.path.dirname(__file__), "include")
