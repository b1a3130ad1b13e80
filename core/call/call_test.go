package call

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// kinds lists one empty message of every kind that has a maker.
func kinds() (out []message) {
	for _, f := range makers {
		if f != nil {
			out = append(out, f())
		}
	}
	return out
}

// fill gives every field below v a value of its own, so that a field its Code
// forgets, or codes twice, shows.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), n)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("s", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(-*n))
	case reflect.Uint8:
		v.SetUint(uint64(*n % 200))
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n) << 20)
	default:
		panic("call: a field of kind " + v.Kind().String() + " needs a case here")
	}
}

func TestEveryKindRoundTrips(t *testing.T) {
	for _, m := range kinds() {
		t.Run(strings.TrimPrefix(fmt.Sprintf("%T", m), "*call."), func(t *testing.T) {
			for _, filled := range []bool{false, true} {
				if n := 0; filled {
					fill(reflect.ValueOf(m).Elem(), &n)
				}
				buf := Encode([]byte("head"), m)
				got, err := Decode(buf[4:])
				if err != nil || !reflect.DeepEqual(got, m) {
					t.Fatalf("%+v became %+v: %v", m, got, err)
				}
				if again := Encode(nil, got); !bytes.Equal(again, buf[4:]) {
					t.Fatalf("encoded to %x, then to %x", buf[4:], again)
				}
				for n := range buf[4:] {
					if _, err := Decode(buf[4 : 4+n : 4+n]); err == nil && n > 0 {
						t.Fatalf("cut at %d of %d: taken", n, len(buf)-4)
					}
				}
				if _, err := Decode(append(buf[4:], 0)); err == nil {
					t.Fatal("a byte too many was passed over")
				}
			}
		})
	}
}

func TestUnknownKindIsAnError(t *testing.T) {
	for _, buf := range [][]byte{nil, {255}, {8, 1}} {
		if m, err := Decode(buf); err == nil {
			t.Errorf("%x became %T", buf, m)
		}
	}
}

type withError struct{ err *model.Error }

func (w *withError) Code(c *wire.Codec) { CodeError(c, &w.err) }

func TestErrorsRoundTrip(t *testing.T) {
	var filled *model.Error
	n := 0
	fill(reflect.ValueOf(&filled).Elem(), &n)
	for _, e := range []*model.Error{nil, {}, filled} {
		got := withError{err: &model.Error{Message: "old"}}
		if err := wire.Decode(wire.Encode(&withError{e}), &got); err != nil || !reflect.DeepEqual(got.err, e) {
			t.Errorf("%+v became %+v: %v", e, got.err, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range kinds() {
		n := 0
		fill(reflect.ValueOf(m).Elem(), &n)
		f.Add(Encode(nil, m))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Decode(data)
		if err != nil {
			return
		}
		buf := Encode(nil, m)
		again, err := Decode(buf)
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%+v became %+v: %v", m, again, err)
		}
	})
}
