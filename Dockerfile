# docker build --build-arg PROGRAM=watcher --build-arg VERSION="$(git describe --tags --always --dirty)" \
#   --build-arg COMMIT="$(git rev-parse HEAD)" -t nodekeeper-watcher:dev .
# and the same for the processor.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# watcher or processor
ARG PROGRAM
ARG VERSION=unknown
ARG COMMIT=unknown
# set by the builder
ARG TARGETOS TARGETARCH
RUN test -d "cmd/${PROGRAM:?give --build-arg PROGRAM=watcher or PROGRAM=processor}" && \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X nodekeeper.dev/internal/version.Version=$VERSION -X nodekeeper.dev/internal/version.commit=$COMMIT" -o /out/program "./cmd/$PROGRAM"

# Nothing but the program: it is static, and the cluster gives the API server's certificate to the pod.
FROM scratch
COPY --from=build /out/program /program
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["/program"]
