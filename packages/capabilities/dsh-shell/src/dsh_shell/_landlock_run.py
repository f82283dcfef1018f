"""Confines itself with Landlock, then becomes a command. Its text is run as a program, on its own.

Usage: `python -I -S -c SOURCE [WRITABLE_FOLDER ...] -- PROGRAM [ARGUMENT ...]`. It imports
the standard library only, and says `dsh-landlock: ...` with exit code 125 if it cannot confine.
"""

import ctypes
import os
import stat
import sys
from typing import Final, NoReturn

PREFIX: Final = "dsh-landlock: "
FAILED: Final = 125
# The same numbers on every architecture.
_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVS: Final = 38
_PATH_BENEATH: Final = 1
_WRITE_FILE: Final = 1 << 1
_TRUNCATE: Final = 1 << 14
_SCOPES: Final = 0b11  # abstract sockets and signals to what is outside
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_fs", ctypes.c_uint64),
        ("handled_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def write_rights(abi: int) -> int:
    """All rights that change something, as far as this kernel knows them."""
    rights = _WRITE_FILE
    for bit in range(4, 13):  # removing and making entries of every kind
        rights |= 1 << bit
    if abi >= 2:
        rights |= 1 << 13  # moving between folders
    if abi >= 3:
        rights |= _TRUNCATE
    return rights


def confine(folders: list[str]) -> None:
    """Give up changing files outside of `folders`, for this process and all it starts.

    Raises:
        OSError: The kernel does not offer it.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(number: int, *arguments: object) -> int:
        result: int = libc.syscall(ctypes.c_long(number), *arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return result

    abi = call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    rights = write_rights(abi)
    ruleset = _Ruleset(rights, 0, _SCOPES if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    rules = call(_CREATE, ctypes.byref(ruleset), ctypes.c_size_t(size), ctypes.c_uint32(0))
    for path in (*folders, *(f"/dev/{name}" for name in _DEVICES)):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        allowed = rights if is_folder else rights & (_WRITE_FILE | _TRUNCATE)
        beneath = _PathBeneath(allowed, descriptor)
        call(
            _ADD_RULE,
            ctypes.c_int(rules),
            ctypes.c_int(_PATH_BENEATH),
            ctypes.byref(beneath),
            ctypes.c_uint32(0),
        )
        os.close(descriptor)
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs was refused")
    call(_RESTRICT, ctypes.c_int(rules), ctypes.c_uint32(0))
    os.close(rules)


def main(arguments: list[str]) -> NoReturn:
    """Confine, then run the command in the place of this program."""
    split = arguments.index("--")
    command = arguments[split + 1 :]
    try:
        confine(arguments[:split])
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{PREFIX}{error}\n")
    sys.exit(FAILED)


if __name__ == "__main__":
    main(sys.argv[1:])
