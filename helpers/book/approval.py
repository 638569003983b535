"""The approval button of JupyterLab: approves one plan, once.

What the approval means is the stage's business; this room only brings the click. It must not decide
whether a plan still is what was shown.
"""

from __future__ import annotations

from collections.abc import Callable

from helpers.plan import Plan


def offer_approval(plan: Plan, on_approve: Callable[[], None]) -> None:
    """Show a button that approves this plan. Where widgets are not shown, its text stands instead.

    **Runs on:** operator. **Changes:** nothing; ``on_approve`` is called once, when it is clicked.

    Args:
        plan: what is approved; its count and hash stand on the button.
        on_approve: told of the click.
    """
    # Imported late: ipywidgets is for a person at the keyboard, a kernel in batch does without.
    import ipywidgets
    from IPython.display import display

    count = len(plan.changes)
    wide = ipywidgets.Layout(width="auto")
    button = ipywidgets.Button(
        description=f"Approve {count} change{'s' * (count != 1)} (plan {plan.hash[:12]})",
        tooltip="Allows exactly this plan. Nothing is changed before the next cell runs.",
        icon="check",
        button_style="warning",
        layout=wide,
    )
    said = ipywidgets.Label("Not approved yet: nothing is changed.")

    def clicked(_: object) -> None:
        if button.disabled:
            return
        button.disabled = True
        on_approve()
        said.value = "Approved. Run the next cell to make the changes."

    button.on_click(clicked)
    # IPython declares no types here.
    display(ipywidgets.HBox([button, said]))  # type: ignore[no-untyped-call]
