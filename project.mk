# Where the project is, and what Go calls it. After a change run make addresses and make chart. RELEASE.md says what has to exist there.
# Nothing else in the repository spells the addresses, and everything that names the module follows: test/repository checks both. Label keys
# and API groups contain nodekeeper.dev, too. They are stored in clusters, and never follow.

# The site: the documentation of the alerts is at $(HOMEPAGE)/docs.
HOMEPAGE := https://nodekeeper.dev
# Where the sources, and so the files of a release, are.
REPOSITORY := https://github.com/nodekeeper/nodekeeper
# Where the images of a release are.
REGISTRY := ghcr.io/nodekeeper
# The path of the Go module, with /v2 at its end from version 2 on.
MODULE := nodekeeper.dev
