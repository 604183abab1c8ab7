// A provider with the schema of google and google-beta, where those cannot be downloaded: enough for `terraform validate` and for
// `terraform test` with mocked providers. It reads the compact schemas that tfschema.py writes (variable TIDELOCK_PROVIDER_SCHEMA, paths
// separated by colons). With TIDELOCK_FAKE_CLOUD it also plans and applies, against a small cloud in that directory: see provider.go.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tfprotov5/tf5server"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// [required, struct, block, repeated, enum, kind]
type argument []any

type typeSchema struct {
	Root    map[string]argument            `json:"root"`
	Structs map[string]map[string]argument `json:"structs"`
	Attrs   []string                       `json:"attrs"`
}

type document struct {
	Types map[string]typeSchema `json:"types"`
}

// Attributes that are computed and no text. The compact schema does not say.
var computed = map[string]tftypes.Type{
	"dns_resource_record": tftypes.List{ElementType: tftypes.Object{AttributeTypes: map[string]tftypes.Type{
		"name": tftypes.String, "type": tftypes.String, "data": tftypes.String}}},
	"generated_id": tftypes.Number,
	"enabled":      tftypes.Bool,
	"urls":         tftypes.List{ElementType: tftypes.String},
}

func (a argument) required() bool     { return a[0].(bool) }
func (a argument) structName() string { s, _ := a[1].(string); return s }
func (a argument) block() bool        { return a[2].(bool) }
func (a argument) repeated() bool     { return a[3].(bool) }
func (a argument) kind() string       { return a[5].(string) }

func attributeType(a argument) tftypes.Type {
	switch a.kind() {
	case "bool":
		return tftypes.Bool
	case "number":
		return tftypes.Number
	case "list":
		return tftypes.List{ElementType: tftypes.String}
	case "map":
		return tftypes.Map{ElementType: tftypes.String}
	default:
		return tftypes.String
	}
}

func block(t typeSchema, args map[string]argument, depth int) *tfprotov5.SchemaBlock {
	b := &tfprotov5.SchemaBlock{}
	for name, a := range args {
		inner, known := t.Structs[a.structName()]
		if a.block() && known {
			if depth > 12 {
				continue
			}
			nested := &tfprotov5.SchemaNestedBlock{TypeName: name, Nesting: tfprotov5.SchemaNestedBlockNestingModeList, Block: block(t, inner, depth+1)}
			if name == "timeouts" {
				nested.Nesting = tfprotov5.SchemaNestedBlockNestingModeSingle
			} else {
				if a.required() {
					nested.MinItems = 1
				}
				if !a.repeated() {
					nested.MaxItems = 1
				}
			}
			b.BlockTypes = append(b.BlockTypes, nested)
			continue
		}
		if a.block() {
			continue
		}
		writeOnly := strings.HasSuffix(name, "_wo")
		b.Attributes = append(b.Attributes, &tfprotov5.SchemaAttribute{
			Name: name, Type: attributeType(a), Required: a.required(), Optional: !a.required(),
			Computed:  depth == 0 && !a.required() && !writeOnly && (name == "id" || name == "project" || name == "address" || name == "name" || name == "version"),
			WriteOnly: writeOnly,
		})
	}
	return b
}

func schema(t typeSchema) *tfprotov5.Schema {
	b := block(t, t.Root, 0)
	for _, name := range t.Attrs {
		if _, set := t.Root[name]; set || name == "id" {
			continue
		}
		ty, special := computed[name]
		if !special {
			ty = tftypes.String
		}
		b.Attributes = append(b.Attributes, &tfprotov5.SchemaAttribute{Name: name, Type: ty, Computed: true})
	}
	if _, set := t.Root["id"]; !set {
		b.Attributes = append(b.Attributes, &tfprotov5.SchemaAttribute{Name: "id", Type: tftypes.String, Computed: true})
	}
	return &tfprotov5.Schema{Block: b}
}

func main() {
	serve := func() tfprotov5.ProviderServer { return &provider{} }
	if err := tf5server.Serve("registry.terraform.io/hashicorp/google", serve); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
