"""Every partition of some columns, to compare samplers with."""

__all__ = ["all_partitions"]


def all_partitions(num_columns):
    """1, 2, 5, 15, 52, ... of them."""
    partitions = [()]
    for column in range(num_columns):
        partitions = [
            grown
            for partition in partitions
            for grown in (
                *(
                    (*partition[:i], (*group, column), *partition[i + 1 :])
                    for i, group in enumerate(partition)
                ),
                (*partition, (column,)),
            )
        ]
    return partitions
