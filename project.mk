# Where the project is. Nothing else in the repository spells these addresses: a test of test/repository finds what does, and RELEASE.md says
# what has to exist there. The domain is also part of the module's path (go.mod), of label keys and of API groups. Those are names, not
# addresses, and stay when the site moves.

# The site: the documentation of the alerts is at $(HOMEPAGE)/docs.
HOMEPAGE := https://nodekeeper.dev
# Where the sources, and so the files of a release, are.
REPOSITORY := https://github.com/nodekeeper/nodekeeper
# Where the images of a release are.
REGISTRY := ghcr.io/nodekeeper
