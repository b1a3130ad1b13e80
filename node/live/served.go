package live

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect/v2"
)

// served is what a node serves, for whoever asks for something else.
type served struct {
	Code       string   `json:"code"`
	Message    string   `json:"message"`
	Paths      []string `json:"paths,omitempty"`
	Procedures []string `json:"procedures,omitempty"`
}

// complete lists what the plain paths' mounting has not.
func (s *served) complete(server *connect.Server) {
	s.Paths = append(s.Paths, "GET /healthz", "GET /metrics")
	slices.Sort(s.Paths)
	for spec := range server.Specs() {
		s.Procedures = append(s.Procedures, spec.Procedure)
	}
	slices.Sort(s.Procedures)
}

// elsewhere answers requests that nothing is served for, with what is.
func (s *served) elsewhere(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if verbs := otherVerbs(mux, r); len(verbs) > 0 {
			w.Header().Set("Allow", strings.Join(verbs, ", "))
			writeJSON(w, http.StatusMethodNotAllowed, served{
				Code:    "unimplemented",
				Message: fmt.Sprintf("%s is not served at %s; use %s", r.Method, r.URL.Path, strings.Join(verbs, " or ")),
			})
			return
		}
		writeJSON(w, http.StatusNotFound, served{
			Code: "not_found", Paths: s.Paths, Procedures: s.Procedures,
			Message: fmt.Sprintf("nothing is served at %s; there are these paths, and each procedure as a POST of JSON",
				r.URL.Path),
		})
	})
}

// otherVerbs are the methods that a path is served for.
func otherVerbs(mux *http.ServeMux, r *http.Request) (verbs []string) {
	for _, verb := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
		if verb == r.Method {
			continue
		}
		other := r.Clone(r.Context())
		other.Method = verb
		if _, pattern := mux.Handler(other); strings.HasPrefix(pattern, verb+" ") {
			verbs = append(verbs, verb)
		}
	}
	return verbs
}

// forCalls passes calls of the services on, in any protocol, and everything else
// to another handler: what a browser or curl sends unasked.
func forCalls(h, other http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasPrefix(r.Header.Get("Content-Type"), "application/") &&
			r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
			h.ServeHTTP(w, r)
			return
		}
		other.ServeHTTP(w, r)
	})
}

// wantsJSON answers a request that does not say that it is JSON.
func wantsJSON(w http.ResponseWriter) {
	w.Header().Set("Accept-Post", "application/json")
	writeJSON(w, http.StatusUnsupportedMediaType, served{
		Code: "invalid_argument", Message: "send a POST of JSON with the header content-type: application/json",
	})
}

func writeJSON(w http.ResponseWriter, status int, v served) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// Compact, as all answers are; an error means that the caller is gone.
	_ = json.NewEncoder(w).Encode(v)
}
