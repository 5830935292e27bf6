"""The SQL of subscriptions: Spark's, as sqlglot reads and writes it."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.spark import Spark

__all__ = ["SubscriptionSql", "first_line", "sql_text"]


class SubscriptionSql(Spark):
    """Spark's SQL, with `window` as the function that Spark knows and not as the clause that SQL reserves it for."""

    class Tokenizer(Spark.Tokenizer):
        KEYWORDS = {word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"}  # noqa: RUF012
        # As in Spark 4, a quote within quotes is written twice or with a backslash.
        STRING_ESCAPES = ["\\", "'", '"']  # noqa: RUF012


def sql_text(node: exp.Expr) -> str:
    return node.sql(dialect=SubscriptionSql)


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0].replace("\x1b[4m", "").replace("\x1b[0m", "")
