package connectnet

import (
	"context"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect/v2/connecthttp"
)

// CutReads is mux for handlers that may wait for their caller for a long time:
// when ctx ends, whatever waits to read a request's body fails, so that no
// handler holds up a stop. Reading in another goroutine would not do: a handler
// must not return while its stream is in use.
func CutReads(ctx context.Context, mux *http.ServeMux) connecthttp.ServeMux { return cutter{ctx, mux} }

type cutter struct {
	ctx context.Context
	mux *http.ServeMux
}

// Handle implements connecthttp.ServeMux.
func (c cutter) Handle(pattern string, h http.Handler) {
	c.mux.Handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var mu sync.Mutex
		done := false // w must not be used once the handler has returned
		stop := context.AfterFunc(c.ctx, func() {
			mu.Lock()
			defer mu.Unlock()
			if !done {
				_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
			}
		})
		defer func() {
			stop()
			mu.Lock()
			done = true
			mu.Unlock()
		}()
		h.ServeHTTP(w, r)
	}))
}
