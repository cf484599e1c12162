"""Tests see no GPU unless MOTET_TEST_GPU is set: most check numbers of a CPU (make test-gpu)."""

import os

if not os.environ.get("MOTET_TEST_GPU"):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
