// Package pin holds the module's requirements while packages that use them are being written.
package pin

import (
	_ "connectrpc.com/connect/v2"
	_ "connectrpc.com/cors"
	_ "connectrpc.com/grpchealth"
	_ "connectrpc.com/grpcreflect/v2"
	_ "github.com/alecthomas/kong"
	_ "github.com/anishathalye/porcupine"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/rs/cors"
	_ "github.com/tidwall/wal"
	_ "go.etcd.io/raft/v3"
	_ "golang.org/x/net/http2"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "google.golang.org/genproto/googleapis/api/annotations"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails"
	_ "gopkg.in/yaml.v3"
	_ "pgregory.net/rapid"
)
