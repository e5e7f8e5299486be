"""Kinds of task: what differs between them is one class each, see :class:`podline.kinds.contract.Kind`."""
