package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/session"
)

// Config says where the cluster is. Zero fields take the default.
type Config struct {
	// Addresses are some of the cluster's nodes, as host:port or URL.
	Addresses []string
	// HTTP makes the requests; by default a client with HTTP/1.1 keep-alive.
	HTTP *http.Client
	// NoDirect sends every request to Addresses and never straight to a
	// partition's leader: for a cluster behind a proxy.
	NoDirect bool
	// CallTimeout bounds a call whose context has no deadline, 10 s.
	CallTimeout time.Duration
}

// Client speaks to one cluster. It is safe for concurrent use.
type Client struct {
	cfg   Config
	nodes *nodes
	start time.Time
}

// New makes a client. It does not connect yet.
func New(cfg Config) (*Client, error) {
	if cfg.HTTP == nil {
		cfg.HTTP = defaultHTTP()
	}
	if cfg.CallTimeout <= 0 {
		cfg.CallTimeout = 10 * time.Second
	}
	n, err := newNodes(cfg.Addresses, cfg.HTTP, cfg.NoDirect)
	if err != nil {
		return nil, err
	}
	return &Client{cfg: cfg, nodes: n, start: time.Now()}, nil
}

// Close closes idle connections. Producers and subscribers are closed by themselves.
func (c *Client) Close() { c.cfg.HTTP.CloseIdleConnections() }

func (c *Client) now() model.Mono { return model.Mono(time.Since(c.start)) }

// ask makes one attempt at one node, or at the next ones as long as nothing was
// sent: what was sent may have had its effect, and asking again is the caller's
// decision.
func ask[T any](ctx context.Context, c *Client, r session.Route, f func(context.Context, *node) (T, error),
) (T, *Error) {
	var zero T
	var last *Error
	for _, n := range c.nodes.order(r) {
		got, err := f(ctx, n)
		if err == nil {
			c.nodes.succeeded(n)
			return got, nil
		}
		last = wrap(err)
		if r.HasPartition && last.Reason == ReasonNotLeader {
			c.nodes.learn(r.Topic, uint32(r.Partition), last.leaderAddress)
		}
		if unreachable(last) && ctx.Err() == nil {
			c.nodes.failed(n)
		}
		if last.Reason != ReasonNotSent || ctx.Err() != nil {
			return zero, last
		}
	}
	return zero, last
}

// unreachable says that the node itself did not answer, or not in time.
func unreachable(e *Error) bool {
	var ce *connect.Error
	if errors.As(e.cause, &ce) && ce.IsRemote() {
		return false
	}
	switch e.Code {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeUnknown, connect.CodeInternal:
		return e.Reason == "" || e.Reason == ReasonNotSent
	}
	return false
}

// carry makes a session's request.
func (c *Client) carry(ctx context.Context, s session.Send) (call.ClientResult, *model.Error) {
	ctx, cancel := context.WithTimeout(ctx, s.Deadline)
	defer cancel()
	result, err := ask(ctx, c, s.Route, func(ctx context.Context, n *node) (call.ClientResult, error) {
		return c.invoke(ctx, n, s.Call)
	})
	if err == nil {
		return result, nil
	}
	if ctx.Err() != nil && err.Reason == "" {
		return nil, model.Errorf(model.DeadlineExceeded, "no answer within %v", s.Deadline)
	}
	return nil, err.model()
}

// do makes a call of a person's or a program's: again after refusals that a
// moment heals, until the context ends.
func do[T any](ctx context.Context, c *Client, r session.Route, f func(context.Context, *node) (T, error)) (T, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.CallTimeout)
		defer cancel()
	}
	var refusal *Error
	for attempt := 1; ; attempt++ {
		got, err := ask(ctx, c, r, f)
		if err == nil {
			return got, nil
		}
		if refusal != nil && err.Reason == "" && ctx.Err() != nil {
			return got, refusal // says more than that the time is over
		}
		refusal = err
		switch err.Reason {
		case ReasonNoLeader, ReasonStaleMap, ReasonThrottled, ReasonNotLeader:
		default:
			return got, err
		}
		ceiling := min(time.Second, 20*time.Millisecond<<min(attempt, 6))
		wait := err.RetryAfter + time.Duration(rand.Int64N(int64(ceiling)))
		if end, _ := ctx.Deadline(); attempt >= 20 || time.Until(end) <= wait {
			return got, err
		}
		if !sleep(ctx, wait) {
			return got, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func randomName(prefix string) string { return fmt.Sprintf("%s-%016x", prefix, rand.Uint64()) }
