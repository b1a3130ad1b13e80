package live

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectgzip"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	connectcors "connectrpc.com/cors"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect/v2"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/cors"
	"google.golang.org/protobuf/proto"

	"github.com/tapedeck/tapedeck/api/tapedeck/v1/tapedeckv1connect"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/net/connectnet"
)

// readMaxBytes is what the transport takes: a request of the allowed size is
// longer in JSON, where bytes are base64. taken.Receive holds it to the real limit.
const readMaxBytes = model.MaxRequestBytes/3*4 + 1<<20

// maxStreams is how many calls one HTTP/2 connection may have under way: long-polls
// and streams among them take long.
const maxStreams = 1000

// noResponseCompression is a size that no response reaches.
const noResponseCompression = 1 << 30

// compactJSON writes the same bytes for the same message: protobuf's own writer
// puts spaces in at random.
type compactJSON struct{ *connectproto.JSONCodec }

// UnmarshalRead implements connect.Codec. An error says how to write what was
// written in another way.
func (c compactJSON) UnmarshalRead(ctx context.Context, src io.Reader, msg any) error {
	err := c.JSONCodec.UnmarshalRead(ctx, src, msg)
	if err == nil {
		return nil
	}
	explained := explainJSON(err, msg)
	for _, h := range jsonHints {
		if strings.Contains(err.Error(), h.sign) {
			return fmt.Errorf("%w; %s", explained, h.hint)
		}
	}
	return explained
}

// jsonHints are by what is found in the library's error.
var jsonHints = []struct{ sign, hint string }{
	{"google.protobuf.Duration", `a duration is a number of seconds and an s, such as "1.5s" or "36000s"`},
	{"google.protobuf.Timestamp", `a moment is written as "2026-01-31T12:00:00Z"`},
	{"unexpected token", `durations, moments and bytes are texts: "1.5s", "2026-01-31T12:00:00Z", base64`},
	{"bytes field", "bytes are written in base64: echo -n TEXT | base64"},
	{"illegal base64", "bytes are written in base64: echo -n TEXT | base64"},
}

// MarshalWrite implements connect.Codec.
func (c compactJSON) MarshalWrite(ctx context.Context, dst io.Writer, msg any) error {
	return c.MarshalWriteStable(ctx, dst, msg)
}

// jsonCodec shows default values and leaves absent messages out. A field it does
// not know is an error: who writes JSON by hand should learn of a slip.
func jsonCodec() compactJSON {
	c := connectproto.NewJSONCodec()
	c.MarshalOptions.EmitDefaultValues = true
	c.UnmarshalOptions.DiscardUnknown = false
	return compactJSON{c}
}

// options are the services': gzip is taken from clients but never sent, since
// compressing every answer costs more than the wire.
func options() []connecthttp.Option {
	return []connecthttp.Option{
		connecthttp.WithCodecs(connectproto.NewBinaryCodec(), jsonCodec()),
		connecthttp.WithCompressors(connectgzip.New()),
		connecthttp.WithCompressMinBytes(noResponseCompression),
		connecthttp.WithReadMaxBytes(readMaxBytes),
	}
}

// newServer puts everything served at the listener together.
func (n *Node) newServer() *http.Server {
	n.client, n.served = connect.NewServer(n.observe), new(served)
	tapedeckv1connect.RegisterPubSubServiceHandler(n.client, pubsub{n})
	tapedeckv1connect.RegisterAdminServiceHandler(n.client, admin{n})
	mux := http.NewServeMux()
	n.mountPaths(countedMux{mux, n})
	connecthttp.Mount(countedMux{mux, n}, n.client, options()...)
	n.mountReflection(mux)
	n.net.Mount(mux)
	mux.Handle(grpchealth.NewHandler(health{n}))
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", n.healthz)
	n.served.complete(n.client)
	mux.Handle("/", n.served.elsewhere(mux))

	http2 := connectnet.HTTP2()
	http2.MaxConcurrentStreams = maxStreams
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: n.cors().Handler(mux), Protocols: protocols, HTTP2: http2,
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug),
	}
}

// mountReflection serves gRPC's reflection of the services for clients. Its
// streams wait for their callers, and must not hold up a stop.
func (n *Node) mountReflection(mux *http.ServeMux) {
	server := connect.NewServer()
	grpcreflect.Register(server, grpcreflect.WithNamer(grpcreflect.NamerFunc(func() []string {
		return []string{
			tapedeckv1connect.AdminServiceName, tapedeckv1connect.PubSubServiceName,
			grpchealth.HealthV1ServiceName, grpcreflect.ReflectV1ServiceName, grpcreflect.ReflectV1AlphaServiceName,
		}
	})))
	connecthttp.Mount(connectnet.CutReads(n.alive, mux), server)
}

// counted counts the requests of clients inside, answers' writing included, so
// that a stop can wait for them.
func (n *Node) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.gate.enter()
		defer n.gate.leave()
		h.ServeHTTP(w, r)
	})
}

// countedMux counts the requests of what is mounted on it.
type countedMux struct {
	*http.ServeMux
	node *Node
}

// Handle implements connecthttp.ServeMux.
func (m countedMux) Handle(pattern string, h http.Handler) {
	if service, ok := strings.CutSuffix(pattern, "/"); ok && strings.HasPrefix(service, "/") {
		h = forCalls(h, m.node.served.elsewhere(m.ServeMux)) // of methods that the service has not
	} else if strings.HasPrefix(pattern, "/") {
		h = forCalls(h, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { wantsJSON(w) }))
	}
	m.ServeMux.Handle(pattern, m.node.counted(h))
}

// observe surrounds every client call: it counts, refuses while stopping, and
// words the size limit.
func (n *Node) observe(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) (err error) {
		began := time.Now()
		defer func() {
			n.metrics.observe(spec.Procedure, err, time.Since(began))
			if err != nil {
				n.log.Debug("call failed", "procedure", spec.Procedure, "error", err)
			}
		}()
		if n.ends() {
			return n.wireError(stopping())
		}
		t := &taken{ServerStream: stream, node: n}
		defer t.release()
		return next(ctx, spec, t)
	}
}

// maxTakenBytes bounds the requests of all calls inside together, so that memory
// is; what is beyond is refused, and comes again after a moment.
const maxTakenBytes = 512 << 20

// taken holds a call's request to the limits and counts its bytes until the call ends.
type taken struct {
	connect.ServerStream
	node  *Node
	bytes int64
}

// Receive implements connect.ServerStream.
func (t *taken) Receive(msg any) error {
	if err := t.ServerStream.Receive(msg); err != nil {
		if connect.CodeOf(err) == connect.CodeResourceExhausted {
			return t.node.wireError(model.Invalid("request",
				"is too long; at most %d bytes are allowed: send it in parts", model.MaxRequestBytes))
		}
		return err
	}
	m, ok := msg.(proto.Message)
	if !ok {
		return nil
	}
	size := proto.Size(m)
	if size > model.MaxRequestBytes {
		return t.node.wireError(model.Invalid("request",
			"has %d bytes; at most %d are allowed: send it in parts", size, model.MaxRequestBytes))
	}
	t.bytes += int64(size)
	if t.node.taken.Add(int64(size)) > maxTakenBytes {
		return t.node.wireError(model.Reasoned(model.ResourceExhausted, model.ReasonThrottled, defaultRetry,
			"this node works on %d MiB of requests already; slow down", maxTakenBytes>>20))
	}
	return nil
}

func (t *taken) release() { t.node.taken.Add(-t.bytes) }

// health answers gRPC's health checks.
type health struct{ *Node }

// Check implements grpchealth.Checker.
func (n health) Check(_ context.Context, req *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	known := []string{"", tapedeckv1connect.AdminServiceName, tapedeckv1connect.PubSubServiceName}
	if !slices.Contains(known, req.Service) {
		// The caller gets NOT_FOUND without this text: the package speaks the older API.
		return nil, fmt.Errorf("service %q is not served here", req.Service)
	}
	if !n.serving() {
		return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
	}
	return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
}

func (n *Node) serving() bool {
	select {
	case <-n.ready:
		return !n.ends()
	default:
		return false
	}
}

func (n *Node) healthz(w http.ResponseWriter, _ *http.Request) {
	if !n.serving() {
		http.Error(w, "not serving: this node knows no leader, or is stopping", http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// cors lets pages of the allowed origins call.
func (n *Node) cors() *cors.Cors {
	return cors.New(cors.Options{
		AllowOriginFunc: n.originAllowed,
		AllowedMethods:  append(connectcors.AllowedMethods(), http.MethodPatch, http.MethodDelete),
		AllowedHeaders:  append(connectcors.AllowedHeaders(), "Authorization"),
		ExposedHeaders:  connectcors.ExposedHeaders(),
		MaxAge:          int(2 * time.Hour / time.Second),
	})
}

func (n *Node) originAllowed(origin string) bool {
	for _, allowed := range n.cfg.AllowedOrigins {
		switch {
		case allowed == "*", strings.EqualFold(allowed, origin):
			return true
		case allowed == "localhost":
			u, err := url.Parse(origin)
			if err == nil && slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, u.Hostname()) {
				return true
			}
		}
	}
	return false
}
