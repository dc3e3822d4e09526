// Data-parallel training, the baseline that sends most: the islands' gradients are averaged before every optimiser step,
// so that all islands hold the same parameters at every step.
//
// The composition "data-parallel": fragments whole · period H = 1 · group all · payload gradient · codec f32 · mean weighted
// by tokens · outer optimiser adopt · merge 0. The mean goes back to the trainer, whose own optimiser takes the step; the
// outer parameters become the trainer's (`adopt`).
//
// Cost of one round: as in diloco.hpp, with N the values of the gradient. A run of T inner steps has T rounds.
#pragma once

#include "strategies/diloco.hpp"
