"""Control files of a mount."""
import os


def put(path, text):
    """Writes at once, and tells what close says: files of Python hide that."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
