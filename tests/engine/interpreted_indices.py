"""Run by ``test_flashinfer_contract.py`` in a process of its own, under Triton's interpreter.

Compares SGLang's index kernel for a plain pool with ``TableTranslator``.
"""

from __future__ import annotations

import torch
from sglang.kernels.ops.attention.kv_indices import create_flashinfer_kv_indices_triton
from table_translator import TableTranslator

ROWS, COLUMNS = 5, 700


def main() -> None:
    table = torch.randperm(ROWS * COLUMNS, dtype=torch.int32).view(ROWS, COLUMNS)
    rows = torch.tensor([3, 0, 0, 4])
    lengths = torch.tensor([1, 513, 22, 600], dtype=torch.int32)
    indptr = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    found, expected = torch.full((2, int(indptr[-1]) + 9), -1, dtype=torch.int32)
    create_flashinfer_kv_indices_triton[(len(rows),)](
        table, rows, lengths, indptr, None, found, table.stride(0)
    )
    TableTranslator(table).pack_read_stream(
        None, req_pool_indices=rows, seq_lens=lengths, indptr=indptr, out=expected
    )
    assert torch.equal(found, expected)
    print("equal")


if __name__ == "__main__":
    main()
