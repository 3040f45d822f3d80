# docker build --target watcher --build-arg VERSION="$(git describe --tags --always --dirty)" --build-arg COMMIT="$(git rev-parse HEAD)" -t nodekeeper-watcher:dev .
# and the same for the processor, the webhook, the ui and the sharder. Without Docker: make images.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown
ARG COMMIT=unknown
# set by the builder
ARG TARGETOS TARGETARCH
# As in the Makefile.
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X nodekeeper.dev/internal/version.Version=$VERSION -X nodekeeper.dev/internal/version.commit=$COMMIT" \
    -o /out/ ./cmd/watcher ./cmd/processor ./cmd/webhook ./cmd/ui ./cmd/sharder

# Nothing but the program: it is static, and the cluster gives the API server's certificate to the pod.
FROM scratch AS image
ARG VERSION=unknown
ARG COMMIT=unknown
LABEL org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$COMMIT \
      org.opencontainers.image.licenses=Apache-2.0
USER 65532:65532
EXPOSE 8080 8081

FROM image AS watcher
LABEL org.opencontainers.image.title=nodekeeper-watcher
COPY --from=build /out/watcher /watcher
ENTRYPOINT ["/watcher"]

FROM image AS processor
LABEL org.opencontainers.image.title=nodekeeper-processor
COPY --from=build /out/processor /processor
ENTRYPOINT ["/processor"]

FROM image AS webhook
LABEL org.opencontainers.image.title=nodekeeper-webhook
EXPOSE 9443
COPY --from=build /out/webhook /webhook
ENTRYPOINT ["/webhook"]

FROM image AS ui
LABEL org.opencontainers.image.title=nodekeeper-ui
COPY --from=build /out/ui /ui
ENTRYPOINT ["/ui"]

FROM image AS sharder
LABEL org.opencontainers.image.title=nodekeeper-sharder
COPY --from=build /out/sharder /sharder
ENTRYPOINT ["/sharder"]
