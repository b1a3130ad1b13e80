package live

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tapedeck/tapedeck/core/model"
)

// The library's errors: where, and what.
var (
	jsonPlace   = regexp.MustCompile(`^proto:\s*(syntax error )?\(line (\d+):(\d+)\): (.*)$`)
	jsonEnum    = regexp.MustCompile(`^invalid value for enum field (\w+): (.*)$`)
	jsonUnknown = regexp.MustCompile(`^unknown field "(.*)"$`)
)

// explainJSON says what is wrong with a request's JSON, and what may stand there.
func explainJSON(err error, msg any) error {
	m, ok := msg.(proto.Message)
	// What the library writes between words is not always the same kind of space.
	found := jsonPlace.FindStringSubmatch(strings.ReplaceAll(err.Error(), "\u00a0", " "))
	if !ok || found == nil {
		return err
	}
	d, what := m.ProtoReflect().Descriptor(), found[4]
	place := fmt.Sprintf("at line %s, character %s", found[2], found[3])
	if found[1] != "" {
		return fmt.Errorf("no JSON %s: %s", place, what)
	}
	if x := jsonEnum.FindStringSubmatch(what); x != nil {
		if names := enumNames(d, protoreflect.Name(x[1]), map[protoreflect.FullName]bool{}); len(names) > 0 {
			return fmt.Errorf("%s is %s %s; use %s", x[1], x[2], place, strings.Join(names, " or "))
		}
	}
	if x := jsonUnknown.FindStringSubmatch(what); x != nil {
		names := fieldNames(d, nil)
		if near := model.Closest(x[1], names); near != "" {
			return fmt.Errorf("%s %s; did you mean %q?", what, place, near)
		}
		return fmt.Errorf("%s %s; %s has %s", what, place, d.Name(), strings.Join(names[:d.Fields().Len()], ", "))
	}
	return errors.New(what + " " + place)
}

// fieldNames are a message's fields, and after them those of the messages in it.
func fieldNames(d protoreflect.MessageDescriptor, seen []protoreflect.FullName) (names []string) {
	if slices.Contains(seen, d.FullName()) {
		return nil
	}
	seen = append(seen, d.FullName())
	var inner []string
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		names = append(names, f.JSONName())
		if f.Message() != nil {
			inner = append(inner, fieldNames(f.Message(), seen)...)
		}
	}
	return append(names, inner...)
}

// enumNames are the values that a field of a message, or of one inside it, may have.
func enumNames(d protoreflect.MessageDescriptor, field protoreflect.Name,
	seen map[protoreflect.FullName]bool) (names []string) {
	if seen[d.FullName()] {
		return nil
	}
	seen[d.FullName()] = true
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if e := f.Enum(); e != nil && (f.Name() == field || f.JSONName() == string(field)) {
			for k := range e.Values().Len() {
				if v := e.Values().Get(k); v.Number() != 0 {
					names = append(names, string(v.Name()))
				}
			}
			return names
		}
		if f.Message() != nil && names == nil {
			names = enumNames(f.Message(), field, seen)
		}
	}
	return names
}
