"""The demo's controller process."""

from __future__ import annotations

import threading

from modeaware.config import parse_controller_config
from modeaware.controller.daemon import Controller
from modeaware.demo.setting import Setting
from modeaware.demo.worker import Link

CONFIGS = {
    # Seconds instead of minutes: everybody who writes here honours modes, and a person is watching.
    "modeaware.seal.quiet.ms": "2000",
    "delete.topic.partition.check.interval.ms": "2000",
}


def run(link: Link, setting: Setting) -> None:
    """Control until told to stop.

    Where another controller is active on the cluster this one stands by, with the other's configs in force: the story
    waits for this one's claim for a minute and then ends with an error.

    Raises:
        ModeAwareError: the cluster, the mode log or the election cannot be used; see
            :meth:`modeaware.controller.daemon.Controller.start`.
    """
    conf = {"bootstrap.servers": setting.bootstrap_servers}
    controller = Controller(conf, parse_controller_config(CONFIGS), controller_id=setting.controller_id)
    threading.Thread(target=_stop_when_told, args=(link, controller), name="demo-stop", daemon=True).start()
    controller.run_forever()


def _stop_when_told(link: Link, controller: Controller) -> None:
    link.stopping.wait()
    controller.stop()
