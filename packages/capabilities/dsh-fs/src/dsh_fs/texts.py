"""What models read about files: descriptions, sections, results. A test holds each of them."""

from typing import Final

READ: Final = (
    "Read a text file. Returns its lines with their numbers, at most 2000 of them; use offset and "
    "limit for the rest of a longer file."
)
READ_FILE_PATH: Final = "Path of the file, absolute or relative to the working directory."
READ_OFFSET: Final = "Number of the first line to read, from 1. Default: 1."
READ_LIMIT: Final = "How many lines to read. Default and maximum: 2000."

READ_IMAGE: Final = (
    "Look at an image file (PNG, JPEG, GIF or WebP, at most 10 MiB). The image itself is returned."
)

WRITE: Final = (
    "Write a whole text file, replacing what is there. Missing directories are made. An existing "
    "file must have been read before."
)
WRITE_FILE_PATH: Final = "Path of the file, absolute or relative to the working directory."
WRITE_CONTENT: Final = "The complete new content, exactly as it is to be stored."

EDIT: Final = (
    "Replace a text in a file that was read before. The text must occur exactly once, unless all "
    "occurrences are to be replaced."
)
EDIT_FILE_PATH: Final = "Path of the file, absolute or relative to the working directory."
EDIT_OLD: Final = (
    "The text to replace, exactly as it stands in the file, with its indentation and without the "
    "line numbers that read shows."
)
EDIT_NEW: Final = "The text to put in its place; must differ from the old one."
EDIT_ALL: Final = "Replace every occurrence. Default: false."

GLOB: Final = (
    "Find files by name pattern, such as `**/*.py` or `src/{a,b}/*.txt`. A pattern without a slash "
    "matches names at any depth. Returns paths, oldest change first; hidden files are included, "
    "folders of version control are not."
)
GLOB_PATTERN: Final = "The pattern: `*`, `?`, `**`, `[a-z]` and `{a,b}`."
GLOB_PATH: Final = "Directory to search in. Default: the working directory."

GREP: Final = (
    "Search the contents of files for a regular expression (Rust syntax). Returns matching lines "
    "by file with their numbers. What version control ignores, and hidden files, are left out."
)
GREP_PATTERN: Final = "The regular expression, matched line by line."
GREP_PATH: Final = "File or directory to search in. Default: the working directory."
GREP_INCLUDE: Final = "One glob of the files to search, such as `*.py` or `*.{ts,tsx}`."

READ_SECTION: Final = (
    "Use `read` to look at files. Read a file before you change it, and read only the part you "
    "need of a long one."
)
WRITE_SECTION: Final = (
    "Use `write` for new files and complete rewrites. Prefer `edit` for changes to existing files."
)
EDIT_SECTION: Final = (
    "Use `edit` for changes to existing files. Copy the old text exactly; if it occurs more than "
    "once, take more of its surroundings."
)
GLOB_SECTION: Final = "Use `glob` to find files by name."
GREP_SECTION: Final = (
    "Use `grep` to find text in files; narrow it with `include` and `path` rather than reading "
    "many files."
)

CONFINED: Final = "Files outside the working directory cannot be reached."

DENIED: Final = "[sandbox: file access denied under {mode} mode]"
PERMISSIONS: Final = (
    "Ask to make this one change with wider file access than the sandbox allows. The user decides."
)
JUSTIFICATION: Final = "Why the wider access is needed; shown to the user."

CREATED: Final = "The file {path} has been created successfully."
UPDATED: Final = "The file {path} has been updated successfully."
UPDATED_ALL: Final = "The file {path} has been updated. All occurrences were successfully replaced."
NO_FILES: Final = "No files found"
MORE_FILES: Final = "(Showing {shown} of {total} files. Use a narrower pattern or path.)"
SAVED: Final = "(The whole result is in {place}: {hint})"
NOT_SAVED: Final = "(The whole result could not be saved. Use a narrower pattern or path.)"
SKIPPED: Final = "({count} files or directories could not be read.)"
NO_MATCHES: Final = "No matches found"
ONE_MATCH: Final = "Found 1 match"
MATCHES: Final = "Found {total} matches"
SOME_MATCHES: Final = "Found {shown} of {total} matches"
MATCH_LINE: Final = "Line {line}: {text}"
NOT_UTF8: Final = "(this line is not UTF-8 text)"
LINE_CUT: Final = " (line truncated)"
END_OF_FILE: Final = "(End of file - total {total} lines)"
MORE_LINES: Final = "(Showing lines {first}-{last} of {total}. Use offset={next} to continue.)"
CAPPED: Final = "(Output capped. Showing lines {first}-{last}. Use offset={next} to continue.)"
