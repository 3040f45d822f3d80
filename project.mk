# The addresses of the project, and the path of its Go module. After a change, run make generate; RELEASE.md lists what must
# exist there. Tests of test/repository check that the addresses appear nowhere else, and that everything that names the module agrees. Label
# keys and API groups also contain nodekeeper.dev: clusters store them, so they never change.

# The site: the documentation of the alerts is at $(HOMEPAGE)/docs.
HOMEPAGE := https://nodekeeper.dev
# Where the sources, and so the files of a release, are.
REPOSITORY := https://github.com/nodekeeper/nodekeeper
# Where the images of a release are.
REGISTRY := ghcr.io/nodekeeper
# The path of the Go module, with /v2 at its end from version 2 on.
MODULE := nodekeeper.dev
