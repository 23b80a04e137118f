"""Recordings: files with the messages of sessions and the values that came with them, for replaying.

- `entries`: the entries of a recording; from bytes to checked entries, and back
- `messages`: the messages in entries
- `chunks`: the file: a line that identifies it, then entries, each with its length and a checksum
- `writer`: a file that is written while entries arrive
- `reader`: a file of any size, read entry by entry
"""
