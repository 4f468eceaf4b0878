"""``headwise check``: is this attention right, and if not, which mistake does it make?"""

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.files import STANDARD, as_options, check_outputs, write
from headwise.errors import HeadwiseError
from headwise.render.terminal import print_view

WRONG = 1  # exit code


def check(
    target: Annotated[
        str | None, typer.Argument(help="module:function, path.py:function, or path.py.")
    ] = None,
    contract: Annotated[
        str | None,
        typer.Option(
            help="Convention: torch-sdpa, torch-mha, flash-attn, jax, keras, onnx, mlx, headwise, default."
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(help="Options it serves, as mask,causal,gqa; found from the signature if left out."),
    ] = None,
    always: Annotated[str | None, typer.Option(help="Options that every call has, as causal.")] = None,
    layout: Annotated[
        str | None, typer.Option(help="Axes of the arrays: bhnd, bnhd, bne, bnd, hnd, nd.")
    ] = None,
    mask_means: Annotated[str | None, typer.Option(help="True in a mask: attend, hide; or add.")] = None,
    causal_alignment: Annotated[
        str | None, typer.Option(help="Where n_q and n_k differ: upper_left or lower_right.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the report as JSON; - prints it.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the report as JUnit XML.")] = None,
    seed: Annotated[int, typer.Option(help="Of the random inputs.")] = 0,
    time_limit: Annotated[float, typer.Option(help="Seconds for one call of the function.")] = 10.0,
    list_rules: Annotated[
        bool, typer.Option("--list", help="List the rules, must or note, and stop.")
    ] = False,
    explain: Annotated[
        str | None, typer.Option(help="Explain a rule or a mistake, with a small example, and stop.")
    ] = None,
) -> None:
    """Check an attention function or layer, and name the mistake where it is wrong.

    headwise check attention.py:attention

    headwise check mypackage.layers:sdpa --contract torch-sdpa --json report.json

    headwise check --explain "kv heads tiled"

    Exit code 0: right; 1: wrong; 2: nothing to check. The function runs in a process of its own.
    """
    from headwise.check import explanation

    if list_rules:
        print_view(explanation.listing(contract))
        return
    if explain is not None:
        typer.echo(explanation.explain(explain))
        return
    if target is None:
        raise HeadwiseError("TARGET", "module:function or path.py:function", "nothing",
                            "headwise check attention.py:attention")  # fmt: skip
    if not time_limit > 0:
        raise HeadwiseError("--time-limit", "seconds > 0", f"{time_limit:g}")
    printed = json is not None and str(json) == STANDARD
    json = None if printed else json
    check_outputs({"--json": json, "--junit": junit})
    from headwise.check.child import check_target
    from headwise.check.subjects.presets import preset
    from headwise.render.check.text import render_check

    changes = {
        "features": _names(features), "always": _names(always), "layout": layout, "mask_means": mask_means,
        "causal_alignment": causal_alignment,
    }  # fmt: skip
    given = {name: value for name, value in changes.items() if value is not None}
    with as_options("contract", *changes):
        preset("default" if contract is None else contract).but(**given)  # refuse before anything runs
        report = check_target(target, contract, given, seed, time_limit)
    if printed:
        typer.echo(report.to_json())
    else:
        print_view(render_check(report.to_dict()))
    for option, path, text in (("--json", json, report.to_json), ("--junit", junit, report.to_junit)):
        if path is not None:
            write(option, path, text())
            typer.echo(f"Written: {path.resolve()}", err=printed)
    if not report.passed:
        raise typer.Exit(WRONG)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
