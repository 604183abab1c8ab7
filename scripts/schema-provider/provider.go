// The provider's side of plan and apply: the least that Terraform needs to plan creations, changes and replacements, and to carry them
// out in the cloud of cloud.go.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// provider answers what Terraform 1.11 asks; anything else panics by the embedded nil.
type provider struct {
	tfprotov5.ProviderServer
	schemas *tfprotov5.GetProviderSchemaResponse
	cloud   *cloud
}

func (p *provider) load() (*tfprotov5.GetProviderSchemaResponse, error) {
	if p.schemas != nil {
		return p.schemas, nil
	}
	optional := func(name string) *tfprotov5.SchemaAttribute {
		return &tfprotov5.SchemaAttribute{Name: name, Type: tftypes.String, Optional: true}
	}
	out := &tfprotov5.GetProviderSchemaResponse{
		Provider: &tfprotov5.Schema{Block: &tfprotov5.SchemaBlock{Attributes: []*tfprotov5.SchemaAttribute{
			optional("project"), optional("region"), optional("billing_project"), {Name: "user_project_override", Type: tftypes.Bool, Optional: true}}}},
		ResourceSchemas:   map[string]*tfprotov5.Schema{},
		DataSourceSchemas: map[string]*tfprotov5.Schema{},
	}
	for _, path := range strings.Split(os.Getenv("TIDELOCK_PROVIDER_SCHEMA"), ":") {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var doc document
		if err := json.Unmarshal(raw, &doc); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for name, t := range doc.Types {
			if rest, ok := strings.CutPrefix(name, "resource."); ok {
				out.ResourceSchemas[rest] = schema(t)
			} else if rest, ok := strings.CutPrefix(name, "data."); ok {
				out.DataSourceSchemas[rest] = schema(t)
			}
		}
	}
	p.schemas = out
	if dir := os.Getenv("TIDELOCK_FAKE_CLOUD"); dir != "" {
		p.cloud = &cloud{dir: dir}
	}
	return out, nil
}

func (p *provider) resource(name string) *tfprotov5.Schema { return p.schemas.ResourceSchemas[name] }

func (p *provider) GetMetadata(context.Context, *tfprotov5.GetMetadataRequest) (*tfprotov5.GetMetadataResponse, error) {
	return nil, fmt.Errorf("not served")
}

func (p *provider) GetProviderSchema(context.Context, *tfprotov5.GetProviderSchemaRequest) (*tfprotov5.GetProviderSchemaResponse, error) {
	return p.load()
}

func (p *provider) GetResourceIdentitySchemas(context.Context, *tfprotov5.GetResourceIdentitySchemasRequest) (*tfprotov5.GetResourceIdentitySchemasResponse, error) {
	return &tfprotov5.GetResourceIdentitySchemasResponse{}, nil
}

func (p *provider) PrepareProviderConfig(_ context.Context, r *tfprotov5.PrepareProviderConfigRequest) (*tfprotov5.PrepareProviderConfigResponse, error) {
	return &tfprotov5.PrepareProviderConfigResponse{PreparedConfig: r.Config}, nil
}

func (p *provider) ConfigureProvider(context.Context, *tfprotov5.ConfigureProviderRequest) (*tfprotov5.ConfigureProviderResponse, error) {
	_, err := p.load()
	return &tfprotov5.ConfigureProviderResponse{}, err
}

func (p *provider) ValidateResourceTypeConfig(context.Context, *tfprotov5.ValidateResourceTypeConfigRequest) (*tfprotov5.ValidateResourceTypeConfigResponse, error) {
	return &tfprotov5.ValidateResourceTypeConfigResponse{}, nil
}

func (p *provider) ValidateDataSourceConfig(context.Context, *tfprotov5.ValidateDataSourceConfigRequest) (*tfprotov5.ValidateDataSourceConfigResponse, error) {
	return &tfprotov5.ValidateDataSourceConfigResponse{}, nil
}

func (p *provider) StopProvider(context.Context, *tfprotov5.StopProviderRequest) (*tfprotov5.StopProviderResponse, error) {
	return &tfprotov5.StopProviderResponse{}, nil
}

func (p *provider) UpgradeResourceState(_ context.Context, r *tfprotov5.UpgradeResourceStateRequest) (*tfprotov5.UpgradeResourceStateResponse, error) {
	if _, err := p.load(); err != nil {
		return nil, err
	}
	ty := p.resource(r.TypeName).ValueType()
	v, err := r.RawState.UnmarshalWithOpts(ty, tfprotov5.UnmarshalOpts{ValueFromJSONOpts: tftypes.ValueFromJSONOpts{IgnoreUndefinedAttributes: true}})
	if err != nil {
		return nil, err
	}
	d, err := tfprotov5.NewDynamicValue(ty, v)
	return &tfprotov5.UpgradeResourceStateResponse{UpgradedState: &d}, err
}

// ReadResource says what is there still. Nobody else changes this cloud, so the state is right as long as the object exists.
func (p *provider) ReadResource(_ context.Context, r *tfprotov5.ReadResourceRequest) (*tfprotov5.ReadResourceResponse, error) {
	ty := p.resource(r.TypeName).ValueType()
	v, err := r.CurrentState.Unmarshal(ty)
	if err != nil {
		return nil, err
	}
	if said := p.cloud.refuse("read", r.TypeName, plain(v)); said != nil {
		return &tfprotov5.ReadResourceResponse{NewState: r.CurrentState, Diagnostics: said}, nil
	}
	if !p.cloud.has(r.TypeName, text(plain(v)["id"])) {
		gone, err := tfprotov5.NewDynamicValue(ty, tftypes.NewValue(ty, nil))
		return &tfprotov5.ReadResourceResponse{NewState: &gone}, err
	}
	return &tfprotov5.ReadResourceResponse{NewState: r.CurrentState}, nil
}

func (p *provider) PlanResourceChange(_ context.Context, r *tfprotov5.PlanResourceChangeRequest) (*tfprotov5.PlanResourceChangeResponse, error) {
	s := p.resource(r.TypeName)
	ty := s.ValueType()
	prior, proposed, config, err := three(ty, r.PriorState, r.ProposedNewState, r.Config)
	if err != nil {
		return nil, err
	}
	if proposed.IsNull() {
		return &tfprotov5.PlanResourceChangeResponse{PlannedState: r.ProposedNewState, UnsafeToUseLegacyTypeSystem: true}, nil
	}
	next, given, before := fields(proposed), fields(config), fields(prior)
	var replace []*tftypes.AttributePath
	if !prior.IsNull() {
		for _, name := range replacedBy(r.TypeName, next) {
			if old, ok := before[name]; ok && !old.Equal(next[name]) && !(given[name].IsNull() && isComputed(s, name)) {
				replace = append(replace, tftypes.NewAttributePath().WithAttributeName(name))
			}
		}
	}
	for _, a := range s.Block.Attributes {
		if a.WriteOnly {
			next[a.Name] = tftypes.NewValue(a.Type, nil)
		} else if a.Computed && given[a.Name].IsNull() && (prior.IsNull() || len(replace) > 0) {
			next[a.Name] = tftypes.NewValue(a.Type, tftypes.UnknownValue)
		}
	}
	planned, err := tfprotov5.NewDynamicValue(ty, tftypes.NewValue(ty, next))
	return &tfprotov5.PlanResourceChangeResponse{PlannedState: &planned, RequiresReplace: replace, UnsafeToUseLegacyTypeSystem: true}, err
}

func (p *provider) ApplyResourceChange(_ context.Context, r *tfprotov5.ApplyResourceChangeRequest) (*tfprotov5.ApplyResourceChangeResponse, error) {
	s := p.resource(r.TypeName)
	ty := s.ValueType()
	prior, planned, _, err := three(ty, r.PriorState, r.PlannedState, r.Config)
	if err != nil {
		return nil, err
	}
	failed := func(said []*tfprotov5.Diagnostic, state *tfprotov5.DynamicValue) (*tfprotov5.ApplyResourceChangeResponse, error) {
		return &tfprotov5.ApplyResourceChangeResponse{NewState: state, Diagnostics: said, UnsafeToUseLegacyTypeSystem: true}, nil
	}
	if planned.IsNull() {
		if said := p.cloud.refuse("delete", r.TypeName, plain(prior)); said != nil {
			return failed(said, r.PriorState)
		}
		p.cloud.remove(r.TypeName, plain(prior))
		return failed(nil, r.PlannedState)
	}
	step := "update"
	if prior.IsNull() {
		step = "create"
	}
	attributes := plain(planned)
	if said := p.cloud.refuse(step, r.TypeName, attributes); said != nil {
		return failed(said, r.PriorState)
	}
	next := fields(planned)
	made := p.cloud.computed(r.TypeName, attributes)
	for _, a := range s.Block.Attributes {
		if v := next[a.Name]; !v.IsKnown() {
			next[a.Name] = value(a.Type, a.Name, made)
		}
	}
	whole := tftypes.NewValue(ty, next)
	p.cloud.put(r.TypeName, plain(whole))
	state, err := tfprotov5.NewDynamicValue(ty, whole)
	if err != nil {
		return nil, err
	}
	// It is there and does not work: Terraform keeps it as tainted.
	return failed(p.cloud.refuse("after "+step, r.TypeName, plain(whole)), &state)
}

func (p *provider) ReadDataSource(_ context.Context, r *tfprotov5.ReadDataSourceRequest) (*tfprotov5.ReadDataSourceResponse, error) {
	s := p.schemas.DataSourceSchemas[r.TypeName]
	ty := s.ValueType()
	config, err := r.Config.Unmarshal(ty)
	if err != nil {
		return nil, err
	}
	name := "data." + r.TypeName
	if said := p.cloud.refuse("read", name, plain(config)); said != nil {
		return &tfprotov5.ReadDataSourceResponse{State: r.Config, Diagnostics: said}, nil
	}
	made, next := p.cloud.computed(name, plain(config)), fields(config)
	for _, a := range s.Block.Attributes {
		if next[a.Name].IsNull() && a.Computed {
			next[a.Name] = value(a.Type, a.Name, made)
		}
	}
	state, err := tfprotov5.NewDynamicValue(ty, tftypes.NewValue(ty, next))
	return &tfprotov5.ReadDataSourceResponse{State: &state}, err
}

func three(ty tftypes.Type, a, b, c *tfprotov5.DynamicValue) (tftypes.Value, tftypes.Value, tftypes.Value, error) {
	var out [3]tftypes.Value
	for i, d := range []*tfprotov5.DynamicValue{a, b, c} {
		v, err := d.Unmarshal(ty)
		if err != nil {
			return v, v, v, err
		}
		out[i] = v
	}
	return out[0], out[1], out[2], nil
}

func fields(v tftypes.Value) map[string]tftypes.Value {
	out := map[string]tftypes.Value{}
	if !v.IsNull() {
		_ = v.As(&out)
	}
	return out
}

func isComputed(s *tfprotov5.Schema, name string) bool {
	for _, a := range s.Block.Attributes {
		if a.Name == name {
			return a.Computed
		}
	}
	return false
}

// value makes what the cloud decides: from `made`, or a text that names the attribute.
func value(ty tftypes.Type, name string, made map[string]any) tftypes.Value {
	v, decided := made[name]
	switch {
	case ty.Is(tftypes.String) && decided:
		return tftypes.NewValue(ty, text(v))
	case ty.Is(tftypes.String):
		return tftypes.NewValue(ty, "fake-"+name)
	case ty.Is(tftypes.Number) && decided:
		return tftypes.NewValue(ty, v)
	case name == "dns_resource_record":
		object := ty.(tftypes.List).ElementType
		field := func(s string) tftypes.Value { return tftypes.NewValue(tftypes.String, s) }
		return tftypes.NewValue(ty, []tftypes.Value{tftypes.NewValue(object, map[string]tftypes.Value{
			"name": field("_acme-challenge." + text(made["domain"]) + "."), "type": field("CNAME"), "data": field("authorize.certificatemanager.goog.")})})
	}
	return tftypes.NewValue(ty, nil)
}

// plain turns a value into what encoding/json makes; what is not known becomes nil.
func plain(v tftypes.Value) map[string]any {
	out, _ := anything(v).(map[string]any)
	return out
}

func anything(v tftypes.Value) any {
	if v.IsNull() || !v.IsKnown() {
		return nil
	}
	var s string
	var b bool
	var list []tftypes.Value
	var object map[string]tftypes.Value
	switch {
	case v.Type().Is(tftypes.String):
		_ = v.As(&s)
		return s
	case v.Type().Is(tftypes.Bool):
		_ = v.As(&b)
		return b
	case v.Type().Is(tftypes.Number):
		return v.String()
	case v.As(&list) == nil:
		out := make([]any, 0, len(list))
		for _, each := range list {
			out = append(out, anything(each))
		}
		return out
	case v.As(&object) == nil:
		out := map[string]any{}
		for name, each := range object {
			out[name] = anything(each)
		}
		return out
	}
	return nil
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
