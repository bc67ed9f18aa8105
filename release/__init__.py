"""What makes a release, and checks it: ``make release-check``. Nothing here is part of the distribution's packages."""
