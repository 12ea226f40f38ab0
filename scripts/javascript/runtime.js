// What a report needs of Vega: no geography, no force layouts, no word clouds.
import { extend } from "vega-util";
import { transforms } from "vega-dataflow";
import * as encode from "vega-encode";
import * as label from "vega-label";
import * as basic from "vega-transforms";
import * as view from "vega-view-transforms";
import { expressionInterpreter } from "vega-interpreter";
import { compile } from "vega-lite";
import { parse } from "vega-parser";
import { Handler } from "vega-tooltip";
import { View } from "vega-view";

extend(transforms, basic, view, encode, label);

globalThis.labctlVega = { Handler, View, compile, expressionInterpreter, parse };
