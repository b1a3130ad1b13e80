package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectinprocess"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tapedeck/tapedeck/core/model"
)

// path is one plain HTTP path of the schema's annotations.
type path struct {
	node    *Node
	client  *connect.Client
	spec    connect.Spec
	input   protoreflect.MessageType
	output  protoreflect.MessageType
	body    bool
	binds   []bind // fields taken from the path
	pattern string // for http.ServeMux
	shown   string // for people
}

// bind is a field of the request and the wildcards it is joined from by "/".
type bind struct {
	field protoreflect.FieldDescriptor
	names []string
}

// mountPaths serves the plain paths that the schema's annotations name, over the
// same services: POST /v1/topics/{topic}/publish and the like. Only what the
// schema uses is understood: one pattern per method, body "*" or none.
func (n *Node) mountPaths(mux connecthttp.ServeMux) {
	client := connect.NewClient(connectinprocess.New(n.client))
	for spec := range n.client.Specs() {
		method, ok := spec.Schema.(protoreflect.MethodDescriptor)
		if !ok {
			continue
		}
		rule, _ := proto.GetExtension(method.Options(), annotations.E_Http).(*annotations.HttpRule)
		if rule.GetPattern() == nil {
			continue
		}
		p, err := newPath(spec, method, rule)
		if err != nil {
			// The schema is compiled in and a test mounts it.
			panic(fmt.Sprintf("HTTP annotation of %s: %v", spec.Procedure, err))
		}
		p.node, p.client = n, client
		n.served.Paths = append(n.served.Paths, p.shown)
		mux.Handle(p.pattern, p)
	}
}

// shape makes a template's variables what a person fills in.
var shape = strings.NewReplacer("{subscription=*/*}", "{topic}/{name}")

func newPath(spec connect.Spec, method protoreflect.MethodDescriptor, rule *annotations.HttpRule) (*path, error) {
	verb, template, err := verbAndTemplate(rule)
	if err != nil {
		return nil, err
	}
	p := &path{spec: spec, body: rule.GetBody() == "*"}
	if p.input, err = protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName()); err != nil {
		return nil, err
	}
	if p.output, err = protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName()); err != nil {
		return nil, err
	}
	rest, pattern := template, verb+" "
	for {
		before, after, found := strings.Cut(rest, "{")
		pattern += before
		if !found {
			break
		}
		variable, tail, closed := strings.Cut(after, "}")
		name, shape, _ := strings.Cut(variable, "=")
		field := method.Input().Fields().ByName(protoreflect.Name(name))
		if !closed || field == nil || field.Kind() != protoreflect.StringKind {
			return nil, fmt.Errorf("variable %q of %s is not a text field", name, template)
		}
		b := bind{field: field}
		for i := range 1 + strings.Count(shape, "/") {
			wildcard := fmt.Sprintf("%s%d", name, i)
			b.names = append(b.names, wildcard)
			if i > 0 {
				pattern += "/"
			}
			pattern += "{" + wildcard + "}"
		}
		p.binds = append(p.binds, b)
		rest = tail
	}
	p.pattern, p.shown = pattern, verb+" "+shape.Replace(template)
	return p, nil
}

func verbAndTemplate(rule *annotations.HttpRule) (verb, template string, err error) {
	switch r := rule.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		return http.MethodGet, r.Get, nil
	case *annotations.HttpRule_Post:
		return http.MethodPost, r.Post, nil
	case *annotations.HttpRule_Patch:
		return http.MethodPatch, r.Patch, nil
	case *annotations.HttpRule_Delete:
		return http.MethodDelete, r.Delete, nil
	}
	return "", "", fmt.Errorf("pattern %T is not understood", rule.GetPattern())
}

// ServeHTTP takes JSON that says so, and answers with JSON. What a page of any
// origin may send unasked, a form or plain text, is refused: the browser asks for
// leave (CORS) only before it sends another content type.
func (p *path) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if p.body && (err != nil || kind != "application/json") {
		wantsJSON(w)
		return
	}
	res, err := p.call(r)
	if err != nil {
		var authored *connect.Error
		if errors.As(err, &authored) {
			err = rebuild(authored)
		}
		_ = connecthttp.NewErrorWriter().Write(w, plainRequest, err)
		return
	}
	var body bytes.Buffer
	if err := jsonCodec().MarshalWrite(r.Context(), &body, res); err != nil {
		http.Error(w, "the answer cannot be written as JSON: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = body.WriteTo(w)
}

// plainRequest makes the error writer answer in JSON, whatever the caller sent.
var plainRequest = func() *http.Request {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "/", http.NoBody)
	if err != nil {
		panic(err)
	}
	return r
}()

func (p *path) call(r *http.Request) (proto.Message, error) {
	req := p.input.New()
	if p.body {
		body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, readMaxBytes))
		var long *http.MaxBytesError
		switch {
		case errors.As(err, &long):
			return nil, p.node.wireError(model.Invalid("request",
				"is too long; at most %d bytes are allowed: send it in parts", model.MaxRequestBytes))
		case err != nil:
			return nil, connect.NewError(connect.CodeInvalidArgument, "the body cannot be read").WithCause(err)
		}
		if len(bytes.TrimSpace(body)) > 0 {
			if err := jsonCodec().UnmarshalRead(r.Context(), bytes.NewReader(body), req.Interface()); err != nil {
				return nil, connect.Errorf(connect.CodeInvalidArgument, "the body: %v", err)
			}
		}
	}
	for _, b := range p.binds {
		parts := make([]string, len(b.names))
		for i, name := range b.names {
			parts[i] = r.PathValue(name)
		}
		value := strings.Join(parts, "/")
		if had := req.Get(b.field).String(); had != "" && had != value {
			return nil, p.node.wireError(model.Invalid(string(b.field.Name()),
				"is %q in the body and %q in the path", had, value))
		}
		req.Set(b.field, protoreflect.ValueOfString(value))
	}
	res := p.output.New().Interface()
	return res, p.client.CallUnary(r.Context(), p.spec, req.Interface(), res)
}

// rebuild makes an error that came through a client this node's own, or it would
// leave without its text.
func rebuild(e *connect.Error) *connect.Error {
	out := connect.NewError(e.Code(), e.Message()).WithCause(e)
	for _, d := range e.Details() {
		out = out.WithDetail(d)
	}
	return out
}
