"""One thread of torch in every test: the nets are small, and threads that wait for each other on
a busy machine make a test of two seconds one of a minute.
"""

import torch

torch.set_num_threads(1)
