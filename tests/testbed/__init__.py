"""A test kit: the bed of ``helpers.sandbox.bed``, and what breaks it on purpose.

    bed = Bed.make(folder)
    bed.add_container(100)
    bed.start()
    …
    bed.stop()

or, from a shell, ``python -m tests.testbed up FOLDER`` and ``… down FOLDER``. It needs root on Linux.
"""

from helpers.sandbox.bed.bed import Bed

__all__ = ["Bed"]
