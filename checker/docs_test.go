package checker

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// docs/histories.md is what others write their recorders by: its example reads and
// is right, and it names every verdict and every field.
func TestHistoriesAreDocumented(t *testing.T) {
	raw, err := os.ReadFile("../docs/histories.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	_, example, _ := strings.Cut(page, "```json\n")
	example, _, _ = strings.Cut(example, "```")
	h, final, err := Read(strings.NewReader(example))
	if err != nil {
		t.Fatal(err)
	}
	report, _ := CheckAll(h, final, DefaultBudget)
	if len(h.Ops) != 4 || report.Result() != OK {
		t.Errorf("the example has %d operations: %s", len(h.Ops), report)
	}
	for _, name := range append([]string{NotLinearizable}, order...) {
		if !strings.Contains(page, "| "+name+" |") {
			t.Errorf("the verdict %q is not explained", name)
		}
	}
	for name := range jsonFields(reflect.TypeFor[line](), map[reflect.Type]bool{}) {
		if !strings.Contains(page, "`"+name+"`") && !strings.Contains(page, `"`+name+`"`) {
			t.Errorf("the field %q is not explained", name)
		}
	}
}

// jsonFields are the names of a type's fields and of all below them.
func jsonFields(t reflect.Type, seen map[reflect.Type]bool) map[string]bool {
	names := map[string]bool{}
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return names
	}
	seen[t] = true
	for i := range t.NumField() {
		f := t.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names[name] = true
		}
		for name := range jsonFields(f.Type, seen) {
			names[name] = true
		}
	}
	return names
}
