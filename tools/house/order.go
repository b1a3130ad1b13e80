package house

import (
	"go/ast"
	"go/token"
	"go/types"
)

// sortedAfter finds loops over maps that only collect into a slice which the
// next statement sorts.
func (v *purity) sortedAfter(list []ast.Stmt) {
	for i := 0; i+1 < len(list); i++ {
		loop, ok := list[i].(*ast.RangeStmt)
		if !ok {
			continue
		}
		into := collects(loop.Body.List)
		if into == "" {
			continue
		}
		next, ok := list[i+1].(*ast.ExprStmt)
		if !ok {
			continue
		}
		sort, ok := next.X.(*ast.CallExpr)
		if !ok || len(sort.Args) == 0 {
			continue
		}
		switch v.called(sort) {
		case "slices.Sort", "slices.SortFunc", "slices.SortStableFunc", "sort.Slice", "sort.Strings", "sort.Ints":
			if types.ExprString(sort.Args[0]) == into {
				v.sorted[loop] = true
			}
		}
	}
}

// collects returns the slice that every statement appends to, "" if they do more.
func collects(list []ast.Stmt) string {
	into := ""
	for _, stmt := range list {
		target := ""
		switch s := stmt.(type) {
		case *ast.AssignStmt:
			if call, ok := s.Rhs[0].(*ast.CallExpr); ok && len(s.Lhs) == 1 && len(s.Rhs) == 1 && len(call.Args) > 0 {
				name, isName := call.Fun.(*ast.Ident)
				target = types.ExprString(s.Lhs[0])
				if !isName || name.Name != "append" || types.ExprString(call.Args[0]) != target {
					return ""
				}
			}
		case *ast.IfStmt:
			if s.Else == nil && s.Init == nil {
				target = collects(s.Body.List)
			}
		}
		if target == "" || into != "" && into != target {
			return ""
		}
		into = target
	}
	return into
}

// commutes says whether statements plainly do the same in whatever order the
// loop's keys come: they fill or delete by the key, count integers, or take a
// maximum or minimum.
func (v *purity) commutes(loop *ast.RangeStmt, list []ast.Stmt) bool {
	for _, stmt := range list {
		switch s := stmt.(type) {
		case *ast.IncDecStmt:
		case *ast.ExprStmt:
			call, ok := s.X.(*ast.CallExpr)
			if !ok || !isBuiltin(call, "delete") || !isKey(loop, call.Args[1]) {
				return false
			}
		case *ast.AssignStmt:
			if !v.commutingAssignment(loop, s) {
				return false
			}
		case *ast.IfStmt:
			if s.Init != nil || s.Else != nil || hasCall(s.Cond) || !v.commutes(loop, s.Body.List) {
				return false
			}
		case *ast.BranchStmt:
			if s.Tok != token.CONTINUE {
				return false
			}
		default:
			return false
		}
	}
	return true
}

func (v *purity) commutingAssignment(loop *ast.RangeStmt, s *ast.AssignStmt) bool {
	if len(s.Lhs) != 1 || hasCall(s.Rhs[0]) {
		if len(s.Lhs) != 1 {
			return false
		}
		call, ok := s.Rhs[0].(*ast.CallExpr)
		extreme := ok && s.Tok == token.ASSIGN && (isBuiltin(call, "max") || isBuiltin(call, "min"))
		return extreme && types.ExprString(call.Args[0]) == types.ExprString(s.Lhs[0])
	}
	if s.Tok == token.ADD_ASSIGN {
		basic, ok := v.info.Types[s.Lhs[0]].Type.Underlying().(*types.Basic)
		return ok && basic.Info()&types.IsInteger != 0
	}
	index, ok := s.Lhs[0].(*ast.IndexExpr)
	return ok && s.Tok == token.ASSIGN && isKey(loop, index.Index) && isMap(v.info.Types[index.X].Type)
}

func isBuiltin(call *ast.CallExpr, name string) bool {
	fun, ok := call.Fun.(*ast.Ident)
	return ok && fun.Name == name
}

func isKey(loop *ast.RangeStmt, e ast.Expr) bool {
	key, ok := loop.Key.(*ast.Ident)
	name, isName := e.(*ast.Ident)
	return ok && isName && name.Name == key.Name
}

// hasCall says whether an expression calls anything that could have an effect;
// len and cap cannot.
func hasCall(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && !isBuiltin(call, "len") && !isBuiltin(call, "cap") {
			found = true
		}
		return !found
	})
	return found
}
