// A provider that knows nothing but its schema: what `terraform validate` and `terraform test` with mocked providers need of the google
// provider, where that cannot be downloaded. It reads the compact schema that tfschema.py writes (variable TIDELOCK_PROVIDER_SCHEMA).
package main

import (
	"context"
	"encoding/json"
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
			Computed:  depth == 0 && !a.required() && !writeOnly && (name == "id" || name == "project" || name == "address" || name == "name"),
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

// Everything that a mocked run never asks for panics by the embedded nil.
type provider struct{ tfprotov5.ProviderServer }

func (provider) GetMetadata(context.Context, *tfprotov5.GetMetadataRequest) (*tfprotov5.GetMetadataResponse, error) {
	return nil, fmt.Errorf("not served")
}

func (provider) GetProviderSchema(context.Context, *tfprotov5.GetProviderSchemaRequest) (*tfprotov5.GetProviderSchemaResponse, error) {
	raw, err := os.ReadFile(os.Getenv("TIDELOCK_PROVIDER_SCHEMA"))
	if err != nil {
		return nil, err
	}
	var doc document
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	optional := func(name string) *tfprotov5.SchemaAttribute {
		return &tfprotov5.SchemaAttribute{Name: name, Type: tftypes.String, Optional: true}
	}
	out := &tfprotov5.GetProviderSchemaResponse{
		Provider:          &tfprotov5.Schema{Block: &tfprotov5.SchemaBlock{Attributes: []*tfprotov5.SchemaAttribute{optional("project"), optional("region")}}},
		ResourceSchemas:   map[string]*tfprotov5.Schema{},
		DataSourceSchemas: map[string]*tfprotov5.Schema{},
	}
	for name, t := range doc.Types {
		if rest, ok := strings.CutPrefix(name, "resource."); ok {
			out.ResourceSchemas[rest] = schema(t)
		} else if rest, ok := strings.CutPrefix(name, "data."); ok {
			out.DataSourceSchemas[rest] = schema(t)
		}
	}
	return out, nil
}

func (provider) PrepareProviderConfig(_ context.Context, r *tfprotov5.PrepareProviderConfigRequest) (*tfprotov5.PrepareProviderConfigResponse, error) {
	return &tfprotov5.PrepareProviderConfigResponse{PreparedConfig: r.Config}, nil
}

func (provider) ValidateResourceTypeConfig(context.Context, *tfprotov5.ValidateResourceTypeConfigRequest) (*tfprotov5.ValidateResourceTypeConfigResponse, error) {
	return &tfprotov5.ValidateResourceTypeConfigResponse{}, nil
}

func (provider) ValidateDataSourceConfig(context.Context, *tfprotov5.ValidateDataSourceConfigRequest) (*tfprotov5.ValidateDataSourceConfigResponse, error) {
	return &tfprotov5.ValidateDataSourceConfigResponse{}, nil
}

func (provider) StopProvider(context.Context, *tfprotov5.StopProviderRequest) (*tfprotov5.StopProviderResponse, error) {
	return &tfprotov5.StopProviderResponse{}, nil
}

func main() {
	serve := func() tfprotov5.ProviderServer { return provider{} }
	if err := tf5server.Serve("registry.terraform.io/hashicorp/google", serve); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
