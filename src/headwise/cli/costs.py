"""``headwise cost``: parameters, FLOPs, bytes and caches of attention, from sizes or a config."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwise.cli.files import STANDARD, as_options, check_outputs, write
from headwise.errors import HeadwiseError
from headwise.render.terminal import print_view

if TYPE_CHECKING:
    from headwise.costs.data import Cost
    from headwise.costs.sweep import Sweep

PAGE = (".html", ".htm")
# Arguments of headwise.cost, each of which is an option here.
OPTIONS = (
    "d_model", "heads", "kv_heads", "head_dim", "v_head_dim", "d_context", "d_out", "kv_rank", "rope_dim",
    "q_rank", "bias", "layers", "causal", "window", "seq", "kv_seq", "cached", "causal_alignment",
    "query_offset", "batch", "dtype_bytes", "cache_bytes", "config", "ignore",
)  # fmt: skip


def cost(
    d_model: Annotated[int | None, typer.Option(help="Width of the layer's input.")] = None,
    heads: Annotated[int | None, typer.Option(help="Query heads, h.")] = None,
    kv_heads: Annotated[int | None, typer.Option(help="Key/value heads; h if left out.")] = None,
    head_dim: Annotated[int | None, typer.Option(help="d_k; d_model / h if left out.")] = None,
    v_head_dim: Annotated[int | None, typer.Option(help="d_v; d_k if left out.")] = None,
    d_context: Annotated[int | None, typer.Option(help="Width of what keys and values come from.")] = None,
    d_out: Annotated[int | None, typer.Option(help="Width of the output.")] = None,
    kv_rank: Annotated[int | None, typer.Option(help="Latent attention: width of the latent.")] = None,
    rope_dim: Annotated[
        int | None, typer.Option(help="Latent attention: width of the shared rotary key.")
    ] = None,
    q_rank: Annotated[
        int | None, typer.Option(help="Latent attention: width of the queries' latent.")
    ] = None,
    bias: Annotated[str | None, typer.Option(help="all, none, or letters of qkvo.")] = None,
    layers: Annotated[int | None, typer.Option(help="How many layers.")] = None,
    causal: Annotated[bool, typer.Option("--causal", help="A query sees no later key.")] = False,
    window: Annotated[
        str | None, typer.Option(help="LEFT,RIGHT keys beside the query's own; - is open: 4095,0.")
    ] = None,
    seq: Annotated[int | None, typer.Option(help="New tokens, n_q.")] = None,
    kv_seq: Annotated[int | None, typer.Option(help="Length of another sequence: cross-attention.")] = None,
    cached: Annotated[int, typer.Option(help="Tokens in the cache already: decoding.")] = 0,
    causal_alignment: Annotated[str | None, typer.Option(help="upper_left or lower_right.")] = None,
    query_offset: Annotated[
        int | None, typer.Option(help="Position of query 0 among the keys, instead of an alignment.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Sequences.")] = 1,
    dtype_bytes: Annotated[float | None, typer.Option(help="Bytes of a number; 2 is 16 bit.")] = None,
    cache_bytes: Annotated[float | None, typer.Option(help="Bytes of a number in the cache.")] = None,
    config: Annotated[Path | None, typer.Option(help="A Hugging Face config.json, or its folder.")] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A field of the config that leaves attention alone; repeatable.")
    ] = None,
    sweep: Annotated[bool, typer.Option("--sweep", help="Every number of heads from 1 to d_model.")] = False,
    json: Annotated[
        Path | None, typer.Option(help="Write every number as JSON; - prints it instead of the tables.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write one offline HTML page.")] = None,
) -> None:
    """Count what attention costs, every number beside its formula.

    headwise cost --d-model 768 --heads 12 --seq 4096

    headwise cost --config config.json --seq 1 --cached 8191

    headwise cost --d-model 512 --seq 1024 --sweep --html sweep.html
    """
    printed = json is not None and str(json) == STANDARD
    json = None if printed else json
    check_outputs({"--html": html, "--json": json}, {"--html": PAGE})
    given: dict[str, Any] = {
        "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "v_head_dim": v_head_dim,
        "d_context": d_context, "d_out": d_out, "kv_rank": kv_rank, "rope_dim": rope_dim, "q_rank": q_rank,
        "bias": _bias(bias), "layers": layers, "window": _window(window), "kv_seq": kv_seq,
        "causal_alignment": causal_alignment, "query_offset": query_offset, "dtype_bytes": dtype_bytes,
        "cache_bytes": cache_bytes,
    }  # fmt: skip
    if sweep:
        others = {**given, "config": config, "cached": cached or None, "ignore": ignore or None}
        found: Cost | Sweep = _sweep(d_model, seq, causal, batch, others)
    else:
        found = _cost(config, given, d_model, seq, cached, batch, causal, ignore)
    if printed:
        typer.echo(found.to_json())
    else:
        from headwise.render.costs.text import render_cost, render_sweep

        print_view((render_sweep if sweep else render_cost)(found.to_dict()))
    files = (("--json", json, found.to_json), ("--html", html, found.to_html))
    for option, path, made in files:
        if path is not None:
            write(option, path, made() + "\n")
    for _, path, _ in files:
        if path is not None:
            typer.echo(f"Written: {path.resolve()}", err=printed)


def _cost(
    config: Path | None,
    given: dict[str, Any],
    d_model: int | None,
    seq: int | None,
    cached: int,
    batch: int,
    causal: bool,
    ignore: list[str] | None,
) -> "Cost":
    from headwise import costs

    if config is None:
        for option, size in (("--d-model", d_model), ("--heads", given["heads"])):
            if size is None:
                hint = (
                    "headwise cost --d-model 768 --heads 12 --seq 4096, or headwise cost --config config.json"
                )
                raise HeadwiseError(option, "a whole number >= 1", "nothing", hint)
    with as_options(*OPTIONS):
        return costs.cost(
            config,
            **given,
            d_model=d_model,
            seq=seq,
            cached=cached,
            batch=batch,
            causal=True if causal else None,
            ignore=tuple(ignore or ()),
        )


def _sweep(d_model: int | None, seq: int | None, causal: bool, batch: int, others: dict[str, Any]) -> "Sweep":
    from headwise.costs.sweep import head_sweep

    beside = [f"--{name.replace('_', '-')}" for name, value in others.items() if value is not None]
    if beside:
        expected = "--d-model, --seq, --causal and --batch only"
        raise HeadwiseError(
            "--sweep", expected, ", ".join(beside), "the sweep goes through every number of heads"
        )
    if d_model is None or seq is None:
        hint = "headwise cost --d-model 512 --seq 1024 --sweep"
        raise HeadwiseError(
            "--d-model" if d_model is None else "--seq", "a whole number >= 1", "nothing", hint
        )
    with as_options(*OPTIONS):
        return head_sweep(d_model, seq, causal=causal, batch=batch)


def _bias(bias: str | None) -> bool | str | None:
    if bias is not None and bias not in ("all", "none") and not set(bias) <= set("qkvo"):
        hint = "--bias qkv: all but W_O"
        raise HeadwiseError("--bias", "all, none or letters of qkvo", bias, hint)
    return {None: None, "all": True, "none": False}.get(bias, bias)


def _window(window: str | None) -> tuple[int | None, int | None] | None:
    if window is None:
        return None
    sides = [side.strip() for side in window.split(",")]
    if len(sides) != 2 or any(side != "-" and not (side.isascii() and side.isdigit()) for side in sides):
        hint = "counts exclude the query itself: 4095,0 sees 4096 keys, itself among them"
        raise HeadwiseError("--window", "LEFT,RIGHT, each a whole number or -", window, hint)
    left, right = (None if side == "-" else int(side) for side in sides)
    return left, right
