"""The example of the README, run as it stands there."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.spark
def test_the_example_prints_what_the_readme_says(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    text = README.read_text()
    (program, printed), *_ = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    exec(compile(program, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip() == printed.strip()


def test_the_files_it_links_to_exist() -> None:
    links = re.findall(r"\]\(([^):#]+)\)", README.read_text())
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
