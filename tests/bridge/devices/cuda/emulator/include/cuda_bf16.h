// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "cuda_fp16.h"
