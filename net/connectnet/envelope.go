package connectnet

import (
	"bufio"
	"encoding/binary"
	"io"
	"net/http"

	"connectrpc.com/connect/v2/connecthttp"
)

// On a stream each message has a prefix of five bytes, flags and length, which
// are handed to HTTP/2 by themselves and would go out in a frame, a write and a
// wake-up of their own. And what a handler reads in small pieces is answered by
// a window update for each. Both ends gather.

const (
	prefixBytes = 5
	readBytes   = 256 << 10 // of a stream's body at once
)

// wholeEnvelopes sends a message's prefix along with its beginning.
type wholeEnvelopes struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t wholeEnvelopes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength <= 0 {
		r = r.Clone(r.Context())
		r.Body = &envelopes{ReadCloser: r.Body}
	}
	return t.RoundTripper.RoundTrip(r)
}

// CloseIdleConnections makes http.Client's reach the transport.
func (t wholeEnvelopes) CloseIdleConnections() {
	if c, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// envelopes reads a body of messages: got bytes of the next prefix were read, or
// left bytes are missing of the message whose prefix was.
type envelopes struct {
	io.ReadCloser
	prefix [prefixBytes]byte
	got    int
	left   int
}

// Read implements io.Reader. It waits for more than a prefix only when more is
// on its way: the sender writes both in one go.
func (e *envelopes) Read(p []byte) (n int, err error) {
	for e.left == 0 {
		if n == len(p) {
			return n, nil
		}
		m, err := e.ReadCloser.Read(p[n:min(len(p), n+prefixBytes-e.got)])
		copy(e.prefix[e.got:], p[n:n+m])
		e.got, n = e.got+m, n+m
		if err != nil {
			return n, err
		}
		if e.got == prefixBytes {
			e.got, e.left = 0, int(binary.BigEndian.Uint32(e.prefix[1:]))
			if e.left == 0 {
				return n, nil
			}
		}
	}
	more, err := e.ReadCloser.Read(p[n:min(len(p), n+e.left)])
	e.left -= more
	return n + more, err
}

// largeReads gives handlers a body that is read in large pieces.
type largeReads struct{ connecthttp.ServeMux }

// Handle implements connecthttp.ServeMux.
func (m largeReads) Handle(pattern string, h http.Handler) {
	m.ServeMux.Handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = bufferedBody{bufio.NewReaderSize(r.Body, readBytes), r.Body}
		h.ServeHTTP(w, r)
	}))
}

type bufferedBody struct {
	*bufio.Reader
	io.Closer
}
