"""Writes the text of a gzip file, which must be one member; reads it in small pieces."""

import gzip
import sys
import zlib

with open(sys.argv[1], "rb") as file:
    packed = file.read()
reader = zlib.decompressobj(31)
text = b"".join(reader.decompress(packed[at : at + 1460]) for at in range(0, len(packed), 1460))
if not reader.eof or reader.unused_data or text != gzip.decompress(packed):
    sys.exit("not one member")
sys.stdout.buffer.write(text)
