"""How providers word a full context window and a spent quota.

Only adapters ask these questions, to choose a code; everybody else looks at the code.
"""

import re

_SEP = r"[\s_-]*"

# Compiled at the first failure that is judged (`re` keeps them): that takes longer than an import.
_CONTEXT_WINDOW = "|".join(
    (
        rf"context{_SEP}(?:length|window){_SEP}(?:is{_SEP})?(?:exceed(?:ed|s)?|overflow(?:ed|s)?)",
        rf"exceed(?:ed|s)?{_SEP}(?:the{_SEP})?(?:model{_SEP})?context{_SEP}(?:length|window)",
        r"max(?:imum)?\s+(?:(?:allowed|supported)\s+)?context\s+(?:length|window)",
        r"maximum\s+prompt\s+length",
        r"prompt\s+is\s+too\s+long",
        r"reduce\s+the\s+length\s+of\s+the\s+messages",
        r"(?:request|prompt|input|messages?)\s+(?:(?:is|are)\s+)?too\s+(?:large|long)\s+for\s+"
        r"(?:(?:this|the)\s+)?(?:model(?:'s)?\s+)?context",
        r"(?:input|prompt|request)\s+(?:is\s+)?too\s+(?:long|large)\s+for\s+(?:this|the)\s+model",
        r"(?:input|prompt|request|messages?)\b.{0,40}"
        r"(?:exceed|overflow|(?:is|are)\s+larger\s+than).{0,40}context",
        r"上下文窗口|上下文长度|(?:提示词|输入|请求).{0,8}过长",
        r"input\s+token\s+count\s+\(\d+\)\s+exceeds\s+the\s+maximum\s+number\s+of\s+tokens\s+allowed",
        r"input\s+is\s+too\s+long\s+for\s+requested\s+model",
        r"exceeded\s+model\s+token\s+limit",
    )
)

_QUOTA = "|".join(
    (
        rf"insufficient{_SEP}(?:account{_SEP})?(?:quota|balance|credits?)",
        rf"(?:quota|usage{_SEP}limit){_SEP}(?:(?:has|have){_SEP}been{_SEP}|is{_SEP}|was{_SEP})?"
        r"(?:exceeded|exhausted|reached)",
        r"exceed(?:ed|s)?\s+your\s+current\s+quota",
        r"exceeded\s+the\b.{0,60}?\busage\s+quota",
        r"reached\s+your\s+(?:\w+\s+)?usage\s+limit",
        r"usage\s+limit\b.{0,80}billing\s+cycle",
        rf"(?:balance|credits?){_SEP}(?:(?:has|have|is|are|was|were|been){_SEP})*"
        r"(?:exhausted|depleted)",
        r"out\s+of\s+(?:credits?|budget)",
        r"credit\s+balance\s+is\s+too\s+low",
    )
)


def is_context_window_exceeded_error(detail: str) -> bool:
    """Whether a provider's error text says that the request does not fit the context window."""
    return re.search(_CONTEXT_WINDOW, detail, re.IGNORECASE) is not None


def is_quota_exceeded_error(detail: str) -> bool:
    """Whether a provider's error text says that a quota, balance or budget is used up.

    A rate limit is not one: it passes by waiting.
    """
    return re.search(_QUOTA, detail, re.IGNORECASE) is not None
