"""Loads limits with rate-limiter-py's LimitLoader. The tables' base name and their endpoint are in the environment.

    limit_loader.py SERVICE FILE
"""

import sys

from limiter.loader import LimitLoader

if __name__ == "__main__":
    service, path = sys.argv[1:]
    LimitLoader(service).load_limits(path)
