"""What a run shows and writes."""

from page_lightning.callbacks.history_keeper import HistoryKeeper
from page_lightning.callbacks.round_checkpoint import RoundCheckpoint
from page_lightning.callbacks.round_progress_bar import RoundProgressBar
from page_lightning.callbacks.run_files import RunFiles
from page_lightning.callbacks.save_config import SaveConfig

__all__ = ["HistoryKeeper", "RoundCheckpoint", "RoundProgressBar", "RunFiles", "SaveConfig"]
